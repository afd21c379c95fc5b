"""Tiers of typed tools with facts and a runbook's policy: ports, GPUs, servers, files."""

from __future__ import annotations

from typing import Any

import pytest

from opsagent.call import Call
from opsagent.gate import Facts, Policy, classify
from opsagent_tools.tool import Tier

RUNBOOK = Policy(ports=((30000, 30010),), units=("sglang-old",), containers=("129",))


def tier(
    tool: str, args: dict[str, Any], facts: Facts | None = None, *, declared: bool = False, rollback: bool = False
) -> Tier:
    call = Call(id="c1", tool=tool, host="gpu01", args=args, declared=declared, rollback=rollback)
    return classify(call, facts or Facts(run="7f3a"), RUNBOOK).tier


FREE = {"port:30000": {"free": True, "owner": ""}, "gpus": {"free": True}, "exe:python": "/usr/bin/python3"}


@pytest.mark.parametrize(
    ("args", "known", "want"),
    [
        ({"port": 30000}, FREE, "R1"),
        ({"port": 30000}, {**FREE, "port:30000": {"free": False, "owner": "pid 7"}}, "R2"),
        ({"port": 30000}, {**FREE, "gpus": {"free": False}}, "R2"),
        ({"port": 30000}, {}, "R2"),
        ({"port": 8000}, FREE, "R2"),
        ({}, FREE, "R2"),
        ({"port": 30000, "python": "/opt/sglang-0.5.11/bin/python"}, FREE, "R1"),
        ({"port": 30000, "python": "/tmp/python"}, FREE, "R3"),
        ({"port": 30000, "env": {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "0,1"}}, FREE, "R1"),
        ({"port": 30000, "env": {"LD_PRELOAD": "/tmp/x.so"}}, FREE, "R3"),
        ({"port": 30000, "log": "/etc/cron.d/x"}, FREE, "R3"),
        ({"port": 30000, "flags": ["--trust-remote-code"]}, FREE, "R2"),
        ({"port": 30000, "flags": ["--trust-remote"]}, FREE, "R2"),  # argparse takes any prefix that says enough
        ({"port": 30000, "flags": ["--config", "/srv/models/more.yaml"]}, FREE, "R2"),
        ({"port": 30000, "flags": ["--delete-ckpt-after-loading"]}, FREE, "R3"),
        ({"port": 30000, "flags": ["--delete"]}, FREE, "R3"),
        ({"port": 30000, "flags": ["--crash-dump=/etc/cron.d"]}, FREE, "R3"),
        ({"port": 30000, "flags": ["--file-stor", "/etc/cron.d"]}, FREE, "R3"),
        ({"port": 30000, "flags": ["--model-path", "/srv/models/m", "--tp", "2", "--context-length=8192"]}, FREE, "R1"),
        ({"port": 30000, "flags": ["--tp-size", "2"]}, FREE, "R1"),
        ({"port": 30000, "flags": ["--crash-dump-folder", "/root/.ssh"]}, FREE, "X"),
        ({"port": 30000, "flags": "--crash-dump-folder=/var/log/sglang/crash"}, FREE, "R1"),
        ({"port": 30000, "flags": ["--port", "8000"]}, FREE, "R2"),
        ({"port": 30000, "flags": "--por=8000"}, FREE, "R2"),
    ],
)
def test_launch(args: dict[str, Any], known: dict[str, Any], want: Tier) -> None:
    assert tier("launch_sglang", {"model": "/srv/models/x", **args}, Facts(known=known, run="7f3a")) == want


def test_stopping_a_server() -> None:
    ours = {"server": {"unit": "opsagent-7f3a-c5", "pid": 12, "port": 30000}}
    theirs = {"server": {"unit": "opsagent-aaaa-c5", "pid": 12}}
    assert tier("stop_server", ours) == "R1"
    assert tier("stop_server", ours, declared=True, rollback=True) == "R1"
    assert tier("stop_server", theirs) == "R3"
    assert tier("stop_server", theirs, declared=True) == "R2"
    assert tier("stop_server", {"server": "sglang-old.service"}) == "R2"
    assert tier("stop_server", {"server": {"unit": "sglang.service"}}) == "R3"
    lie = {"server": {"unit": "opsagent-7f3a-c5", "pid": 4121}}
    assert tier("stop_server", lie, Facts({"pid:4121": {"unit": "nginx.service"}}, run="7f3a")) == "R3"
    assert tier("stop_server", lie, Facts({"pid:4121": {"unit": "session-3.scope"}}, run="7f3a")) == "R1"
    assert tier("stop_server", {"pid": 7}, Facts({"pid:7": {"unit": "opsagent-7f3a-c5.service"}}, run="7f3a")) == "R1"


def test_files_that_exist_and_that_are_ours() -> None:
    there = {"path:/srv/models/a": {"real": "/srv/models/a", "exists": True, "kind": "file"}}
    args = {"path": "/srv/models/a", "content": "x"}
    assert tier("write_file", args, Facts(there)) == "R2"
    assert tier("write_file", args, Facts(there, owned=frozenset({"/srv/models/a"}))) == "R1"
    assert tier("write_file", args, Facts({"path:/srv/models/a": {"real": "/srv/models/a", "exists": False}})) == "R1"
    linked = {"path:/srv/models/a": {"real": "/boot/grub/grub.cfg", "exists": True, "kind": "file"}}
    assert tier("write_file", args, Facts(linked)) == "R3"


def test_modes_of_files() -> None:
    for mode, want in (("0644", "R1"), ("755", "R1"), (755, "R1"), ("0777", "R3"), ("4755", "R3"), (666, "R3")):
        assert tier("write_file", {"path": "/srv/models/a", "content": "x", "mode": mode}) == want, mode


def test_containers_that_the_runbook_names() -> None:
    def exec_tier(ctid: str, *argv: str) -> Tier:
        return tier("ssh_exec", {"argv": ["pct", "exec", ctid, "--", *argv]})

    assert exec_tier("129", "mkdir", "/srv/models/x") == "R1"
    assert exec_tier("113", "mkdir", "/srv/models/x") == "R2"
    assert exec_tier("129", "rm", "-rf", "/srv/models/x") == "R3"
    assert exec_tier("113", "nvidia-smi") == "R0"
    assert exec_tier("129", "cat", "/root/.ssh/id_rsa") == "X"


def test_units_of_this_run() -> None:
    assert tier("ssh_exec", {"argv": ["systemctl", "stop", "opsagent-7f3a-c5"]}) == "R1"
    assert tier("ssh_exec", {"argv": ["systemctl", "stop", "opsagent-7f3a-c5.service"]}) == "R1"
    assert tier("ssh_exec", {"argv": ["systemctl", "stop", "opsagent-bbbb-c5"]}) == "R2"


def test_a_named_unit_that_was_stopped_comes_back_without_anybody() -> None:
    """Only as the runbook's declared rollback, only `start`, only what `allow.units` names."""

    def undo(verb: str, unit: str, *, declared: bool = True, rollback: bool = True) -> Tier:
        return tier("ssh_exec", {"argv": ["systemctl", verb, unit]}, declared=declared, rollback=rollback)

    assert undo("start", "sglang-old.service") == "R1"
    assert undo("start", "sglang-old.service", declared=False) == "R2"
    assert undo("start", "sglang-old.service", rollback=False) == "R2"
    assert undo("restart", "sglang-old.service") == "R2"
    assert undo("start", "nginx.service") == "R2"
    assert undo("start", "poweroff.target") == "R3"


def test_a_question_is_for_a_person() -> None:
    assert tier("ask_operator", {"question": "May it go?"}, declared=True) == "R2"
    assert tier("finish", {}) == "R0"


def test_waiting_for_a_job_is_a_read() -> None:
    assert tier("run_job", {"job": "opsagent-7f3a-c5", "argv": None, "env": {}, "cwd": "", "log": ""}) == "R0"
    assert tier("run_job", {"argv": ["sleep", "5"], "job": "", "env": {"LD_PRELOAD": "x"}}) == "R3"
