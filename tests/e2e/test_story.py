"""The program as a user starts it: the README's run on the lab, then what is done with a run afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def opsagent(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home), "OPENAI_API_KEY": ""}
    return subprocess.run(
        [sys.executable, "-c", "from opsagent.cli import main; main()", *words],
        capture_output=True, text=True, timeout=300, env=env, stdin=subprocess.DEVNULL, cwd=home, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    home = tmp_path_factory.mktemp("home")
    done = opsagent("run", "runbooks/migrate.md", "--json", "--out", str(home / "run"), home=home)
    assert done.returncode == 0, done.stderr[-3000:]
    return home, json.loads(done.stdout)


def test_the_first_run_moves_the_model_and_says_what_binds_it(story: tuple[Path, dict[str, Any]]) -> None:
    _home, report = story
    limits = {limit["name"]: limit for limit in report["limits"]}
    assert (report["status"], report["simulated"], report["weight_loads"]) == ("verified", True, 1)
    assert limits["max_running_requests"]["value"] >= 4
    assert limits["max_total_num_tokens"]["value"] > 100_000
    low, high = limits["max_total_num_tokens"]["interval"]
    assert low <= limits["max_total_num_tokens"]["value"] <= high
    assert all(probe["ok"] for probe in report["verification"])
    assert any("kpro6" in text for text in report["open"])


def test_the_run_can_be_checked_replayed_stopped_and_rolled_back(story: tuple[Path, dict[str, Any]]) -> None:
    home, _report = story
    run = str(home / "run")
    assert opsagent("verify", run, home=home).returncode == 0
    assert opsagent("replay", run, "--mode", "strict", home=home).returncode == 0
    assert opsagent("stop", run, home=home).returncode == 0
    rolled = opsagent("rollback", run, "--json", home=home)
    assert rolled.returncode == 0, rolled.stderr[-3000:]
    report = json.loads(rolled.stdout)
    changed = {(change["host"], change["what"]) for change in report["changes"] if change["host"] == "kpro5"}
    assert not any(what.startswith("configuration") for _host, what in changed)
    assert not any(what.startswith("servers") for _host, what in changed)
    assert opsagent("verify", run, home=home).returncode == 0


def test_a_call_that_needs_a_person_waits_for_one_in_another_process(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    waits = opsagent("run", "runbooks/migrate.md", "--approve", "declared", "--json", "--out", run, home=tmp_path)
    assert waits.returncode == 4
    assert json.loads(waits.stdout)["status"] == "waiting-approval"
    assert opsagent("approve", run, "--confirm-host", "kpro5", home=tmp_path).returncode == 0
    again = opsagent("resume", run, "--json", home=tmp_path)
    assert again.returncode == 4  # the next call of that tier waits in its turn
    events = [json.loads(line) for line in (Path(run) / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    made = [e["data"]["call"] for e in events if e["type"] == "call.started"]
    waited = [e["data"]["call"] for e in events if e["type"] == "approval.requested"]
    assert waited[0] in made
    assert waited[-1] not in made


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["run", "nothing.md"], 2, "nothing.md"),
        (["run", "runbooks/launch.md", "--host", "target=nowhere-at-all"], 2, "nowhere-at-all"),
        (["run", "runbooks/launch.md", "--host", "targt=local"], 2, "target"),
        (["run", "runbooks/launch.md", "-p", "modl_dir=/x"], 2, "model_dir"),
        (["run", "runbooks/launch.md", "--lab", "nothing"], 2, "nothing"),
        (["resume", "zzzz"], 2, "zzzz"),
    ],
)
def test_bad_input_is_one_error_and_one_report(words: list[str], code: int, hint: str, tmp_path: Path) -> None:
    done = opsagent(*words, "--json", home=tmp_path)
    assert done.returncode == code
    report = json.loads(done.stdout)
    assert (report["exit_code"], report["status"]) == (2, "invalid")
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
