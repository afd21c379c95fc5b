"""A real SIGKILL of a run on the lab (which dies with it), then `opsagent resume` in a new process: same end, nothing twice.

The everyday run kills once; `pytest -m soak` at many events, of the whole story too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opsagent_lab
from opsagent_lab import scenario


def opsagent(*args: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", "from opsagent.cli import main; main()", *args]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(folder: Path) -> int:
    journal = folder / "events.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def killed_after(name: str, events: int, folder: Path) -> bool:
    """Start a run and kill it when its journal has so many events; False when it was over before."""
    run = opsagent("run", f"runbooks/{scenario.load(name).runbook}.md", "--lab", name, "--out", str(folder), "--json")
    try:
        while run.poll() is None and lines(folder) < events:
            time.sleep(0.002)
        return run.poll() is None
    finally:
        run.kill()
        run.communicate()


def soak(name: str, numbers: range) -> list[object]:
    return [pytest.param(name, n, marks=pytest.mark.soak) for n in numbers]


@pytest.mark.parametrize(
    ("name", "events"), [("dense", 54), *soak("dense", range(2, 80)), *soak("story", range(2, 240, 9))]
)
def test_a_killed_run_goes_on(name: str, events: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert killed_after(name, events, folder), "the run was over before it could be killed"
    again = opsagent("resume", str(folder), "--json")
    out, err = again.communicate(timeout=200)
    assert again.returncode == 0, err[-2000:]
    with opsagent_lab.open(name, state=folder / "lab.json") as lab:
        assert lab.oracle(json.loads(out)) == []
