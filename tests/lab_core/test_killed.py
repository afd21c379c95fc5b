"""A real SIGKILL of a run on the lab (which dies with it), then `opsagent resume` in a new process: same end, nothing twice.

The everyday run kills once; `pytest -m soak` at many events, and the whole story once after the first event of each type.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import opsagent_lab
from opsagent.data import data_dir
from opsagent.journal import read_log
from opsagent_lab import scenario


def opsagent(*args: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", "from opsagent.cli import main; main()", *args]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def journal(folder: Path) -> bytes:
    path = folder / "events.jsonl"
    return path.read_bytes() if path.exists() else b""


def killed_when(name: str, folder: Path, due: Callable[[bytes], bool]) -> bool:
    """Start a run and kill it as soon as its journal is so far; False when it was over before."""
    run = opsagent("run", f"runbooks/{scenario.load(name).runbook}.md", "--lab", name, "--out", str(folder), "--json")
    try:
        while run.poll() is None and not due(journal(folder)):
            time.sleep(0.002)
        return run.poll() is None
    finally:
        run.kill()
        run.communicate()


def goes_on(name: str, folder: Path) -> None:
    again = opsagent("resume", str(folder), "--json")
    out, err = again.communicate(timeout=400)
    assert again.returncode == 0, err[-2000:]
    with opsagent_lab.open(name, state=folder / "lab.json") as lab:
        assert lab.oracle(json.loads(out)) == []


def soak(name: str, numbers: range) -> list[object]:
    return [pytest.param(name, n, marks=pytest.mark.soak) for n in numbers]


@pytest.mark.parametrize(("name", "events"), [("dense", 54), *soak("dense", range(2, 80))])
def test_a_killed_run_goes_on(name: str, events: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    landed = killed_when(name, folder, lambda data: data.count(b"\n") >= events)
    assert landed, "the run was over before it could be killed"
    goes_on(name, folder)


def types_of_the_story() -> list[str]:
    """Every type that a run of the story writes."""
    recorded = {event.type for event in read_log(data_dir("transcripts") / "story").events}
    return sorted(recorded | {"host.locked", "host.released", "bystanders"})


@pytest.mark.soak
@pytest.mark.parametrize("type", types_of_the_story())
def test_the_story_killed_after_each_type_of_event(type: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    wanted = f'"type":"{type}"'.encode()
    assert killed_when("story", folder, lambda data: wanted in data), "the run was over before it could be killed"
    goes_on("story", folder)
