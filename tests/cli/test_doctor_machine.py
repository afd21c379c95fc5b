"""`opsagent doctor` on a machine that lacks things: each is one check with what to do, and none hides the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import FakeHost

from opsagent import doctor, doctor_machine
from opsagent.cli.doctor import command


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("OPSAGENT_LLM", "OPENAI_BASE_URL", "OPENAI_API_KEY", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checks(*words: str) -> tuple[int, dict[str, dict[str, object]]]:
    done = CliRunner().invoke(command, [*words, "--json"], standalone_mode=False)
    assert done.exception is None, done.exception
    return int(done.return_value), {f"{c['area']} {c['name']}": c for c in json.loads(done.stdout)["checks"]}


def test_a_bare_machine_is_fine_and_says_what_is_worth_knowing(home: Path) -> None:
    code, found = checks()
    assert code == 0
    assert {name for name, check in found.items() if check["ok"] is False} == set()
    for name in ("machine known_hosts", "machine ssh keys", "host hosts.toml"):
        assert found[name]["ok"] is None
        assert found[name]["hint"]
    assert found["llm choice"]["ok"] is True
    assert found["machine configuration"]["detail"] == "all defaults"


def test_every_broken_file_is_a_finding_and_the_rest_is_still_checked(home: Path) -> None:
    (home / "hosts.toml").write_text("[hosts.\n")
    (home / "opsagent.toml").write_text("[gate]\nrots = []\n")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Match never-heard-of\n")
    code, found = checks("--llm", "some-model")
    assert code == 2
    wrong = {name for name, check in found.items() if check["ok"] is False}
    assert wrong == {"machine configuration", "machine ssh configuration", "host hosts.toml", "llm choice"}
    assert "roots" in str(found["machine configuration"]["hint"])
    assert found["machine runs folder"]["ok"] is True


def test_ssh_keygen_is_looked_for_on_the_path(home: Path) -> None:
    found = {check.name: check for check in doctor_machine.machine({"PATH": str(home), "HOME": str(home)})}
    assert found["ssh-keygen"].ok is None
    assert found["ssh-keygen"].hint


def test_a_configuration_folder_that_cannot_be_written_is_worth_knowing(home: Path) -> None:
    (home / "file").write_text("")
    env = {"XDG_CONFIG_HOME": str(home / "file"), "XDG_STATE_HOME": str(home / "state")}
    found = {check.name: check for check in doctor_machine.machine(env)}
    assert (found["configuration folder"].ok, bool(found["configuration folder"].hint)) == (None, True)


@pytest.mark.parametrize(
    ("said", "fine"),
    [((0, "Python 3.11.7\n", ""), True), ((0, "Python 3.6.9\n", ""), False), ((127, "", "not found\n"), False)],
)
def test_a_host_needs_python(said: tuple[int, str, str], fine: bool) -> None:
    host = FakeHost()
    host.programs["python3"] = lambda *_a: said
    host.programs["uname"] = lambda *_a: (0, "Linux 6.8.0 x86_64\n", "")
    host.programs["nvidia-smi"] = lambda *_a: (0, "RTX A6000, 49140 MiB, 580\n", "")
    found = {check.name: check for check in doctor.host("box", lambda: host)}
    assert (found["box python3"].ok, found["box GPUs"].ok) == (fine, True)
