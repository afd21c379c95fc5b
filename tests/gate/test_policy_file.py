"""Layers of policy: unknown keys, examples that run at load, and that a lower layer can only tighten."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsagent.call import TIERS, Call
from opsagent.config import Layer, Level, read_layer
from opsagent.gate import Facts, classify
from opsagent.gate.layers import for_run
from opsagent.gate.policy import under
from opsagent.gate.policy_file import policy_from
from opsagent.runbook.model import Allow, FrontMatter, Runbook
from opsagent_tools.errors import InputError


def layer(tmp_path: Path, text: str, level: Level = "project") -> Layer:
    path = tmp_path / f"{level}.toml"
    path.write_text(text)
    return read_layer(level, path)


def runbook(**allow: object) -> Runbook:
    front = FrontMatter(opsagent=1, name="x", allow=Allow.model_validate(allow))
    return Runbook("x.md", "", front, "x", "", ())


RULE = """
[[gate.rule]]
id = "no-nccl"
prefix = ["free"]
tier = "R2"
why = "example"
match = ["free -g"]
not_match = ["df -h"]
"""


def test_a_rule_raises_its_command(tmp_path: Path) -> None:
    policy = policy_from([layer(tmp_path, RULE)])
    call = Call(id="c1", tool="ssh_exec", host="h", args={"argv": ["/usr/bin/free", "-g"]})
    verdict = classify(call, Facts(), policy)
    assert verdict.tier == "R2"
    assert verdict.reasons[0].rule == "no-nccl"
    assert classify(call.model_copy(update={"args": {"argv": ["df", "-h"]}}), Facts(), policy).tier == "R0"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[gate]\nroot = ['/x']", "unknown key `root`"),
        ("[gates]\n", "unknown key `gates`"),
        (RULE.replace("prefix", "prefx"), "unknown key `prefx`"),
        (RULE.replace('match = ["free -g"]', 'match = ["df"]'), "does not match its example"),
        (RULE.replace('not_match = ["df -h"]', 'not_match = ["free"]'), "which it must not"),
        (RULE.replace('match = ["free -g"]\n', "", 1), "no example"),
        (RULE.replace('"R2"', '"R0"'), "can only raise"),
        (RULE.replace('"R2"', '"R9"'), "not a tier"),
        ("[gate]\nroots = ['models']", "not a root"),
        ("[gate]\nroots = ['/']", "not a root"),
        ("[gate]\nports = ['70000']", "not a port range"),
        ("[gate]\nmaintenance_window = 'sometimes'", "not a maintenance window"),
        ("[gate]\nmax_hosts_written = 0", "positive number"),
        ("[gate", "not TOML"),
    ],
)
def test_faults_are_said(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        policy_from([layer(tmp_path, text)])


def test_a_suggestion_for_a_misspelt_key(tmp_path: Path) -> None:
    with pytest.raises(InputError) as stop:
        policy_from([layer(tmp_path, "[gate]\nrots = []")])
    assert stop.value.hint == "did you mean `roots`?"


def test_a_lower_layer_cannot_widen(tmp_path: Path) -> None:
    admin = layer(tmp_path, "[gate]\nroots = ['/srv/models']\nports = ['30000-30010']\nmax_hosts_written = 1\n"
                            "[gate.tier_caps]\ngpu01 = 'R1'\n", "administrator")  # fmt: skip
    project = layer(tmp_path, "[gate]\nroots = ['/', '/home', '/srv/models/a']\n".replace("'/', ", "") +
                              "ports = ['1-65535']\nmax_hosts_written = 9\n[gate.tier_caps]\ngpu01 = 'R3'\n")  # fmt: skip
    policy = policy_from([admin, project])
    assert policy.roots == ("/srv/models/a",)
    assert policy.max_hosts_written == 1
    assert policy.tier_caps == {"gpu01": "R1"}
    run = for_run(runbook(ports=("30000-30001", "8000"), roots=("/etc", "/srv/models/a/b")), found=[admin])
    assert run.ports == ((30000, 30001),)
    assert run.roots == ("/srv/models/a/b",)


def test_a_project_file_alone_narrows_the_defaults(tmp_path: Path) -> None:
    assert policy_from([layer(tmp_path, "[gate]\nroots = ['/home']")]).roots == ()
    assert policy_from([layer(tmp_path, "[gate]\nroots = ['/home/me/models']", "user")]).roots == ("/home/me/models",)


def test_more_layers_never_lower_a_tier(tmp_path: Path) -> None:
    texts = [RULE, "[gate]\nroots = ['/srv/models/a']", "[gate]\nports = ['1']\ncontainers = []", "[gate]\nhosts = []"]
    lines = [
        "free",
        "mkdir /srv/models/a/x",
        "mkdir /srv/models/b",
        "pct exec 1 -- mkdir /srv/models/x",
        "reboot",
        "ls",
    ]
    commands = [line.split() for line in lines]
    calls = [Call(id="c1", tool="ssh_exec", host="h", args={"argv": words}) for words in commands]
    found: list[Layer] = []
    before = [classify(each, Facts(), policy_from(found)).tier for each in calls]
    for text in texts:
        found.append(layer(tmp_path, text))
        now = [classify(each, Facts(), policy_from(found)).tier for each in calls]
        assert all(TIERS.index(b) >= TIERS.index(a) for a, b in zip(before, now, strict=True))
        before = now


def test_roots() -> None:
    assert under("/opt/sglang-0.5.11/bin", "/opt/sglang-*")
    assert not under("/opt/sglang-", "/opt/sglang-*")
    assert not under("/opt/other", "/opt/sglang-*")
    assert not under("/srv/models-old", "/srv/models")
    assert under("/srv/models", "/srv/models")
