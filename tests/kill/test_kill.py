"""A real SIGKILL at every write of the journal and around every effect, then resume: no effect twice, none lost.

The everyday run kills at every fourth write, `pytest -m soak` at each.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kill.deadly import PHASES, deadly_disk, die
from kill.world import BODY, TOOLS, FileHost, gate
from replay.record import record

from opsagent.journal import FileJournal, read_log
from opsagent.journal.disk import Disk
from opsagent.replay.recording import Recording
from opsagent.replay.run import replay
from opsagent.verify import verify


def in_a_child(work: Callable[[], object]) -> int:
    """Run in a forked child that ends without cleaning up; returns the signal that killed it, 0 if it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    _pid, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def attempt(folder: Path, host: FileHost, *, disk: Disk | None = None, resume: bool = False) -> str:
    """One process of the run; returns its status."""
    run = record(
        folder, BODY, host=host, gate=gate(), tools=TOOLS, resume=resume, disk=disk or Disk(fsync=lambda _fd: None)
    )
    return run.journal.state.status


def to_the_end(folder: Path, host: FileHost) -> None:
    """Resume until it is verified; where a person must look at the host, look."""
    for _ in range(3):
        if not (folder / "events.jsonl").exists() or not read_log(folder).events:
            for path in sorted(folder.rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            status = attempt(folder, host)  # it died before it began: nothing was there to resume
        else:
            status = attempt(folder, host, resume=True)
        if status != "unknown-outcome":
            break
        operator_looks(folder, host)
    assert status == "verified"


def operator_looks(folder: Path, host: FileHost) -> None:
    with FileJournal.resume(folder) as journal:
        (open_call,) = journal.state.unsettled
        ident = open_call.call.id
        if any(line.startswith(f"{ident} smash") for line in host.lines()):
            journal.append("call.reconciled", call=ident, happened="yes", by="operator", result={"value": host.count()})
        else:
            journal.append("call.reconciled", call=ident, happened="no", by="operator")


def check(folder: Path, host: FileHost) -> None:
    """The same state as the undisturbed run, each effect once, and a journal that verifies and replays."""
    tools = [line.split()[1] for line in host.lines()]
    assert tools.count("add") == 1
    assert tools.count("smash") == 1
    assert tools.count("put") >= 1
    assert host.count() == 10
    found = verify(folder)
    assert found.ok, found.findings
    again = replay(Recording.open(folder), tools=TOOLS)
    assert again.ok, again.divergence


def writes_of_a_whole_run(folder: Path) -> int:
    count = [0]

    def write(fd: int, data: bytes) -> int:
        count[0] += 1
        return os.write(fd, data)

    host = FileHost(path=folder / "effects")
    assert attempt(folder / "run", host, disk=Disk(write=write, fsync=lambda _fd: None)) == "verified"
    check(folder / "run", host)
    return count[0]


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("phase", PHASES)
def test_killed_at_any_write(tmp_path: Path, phase: str, every: int) -> None:
    total = writes_of_a_whole_run(tmp_path / "whole")
    landed = 0
    points = range(1 + PHASES.index(phase) % every, total + 1, every)
    for at in points:
        folder = tmp_path / f"{at}"
        folder.mkdir()
        host = FileHost(path=folder / "effects")
        died = in_a_child(partial(attempt, folder / "run", host, disk=deadly_disk(at, phase)))
        landed += died == signal.SIGKILL
        if "run.finished" not in (folder / "run" / "events.jsonl").read_text():
            to_the_end(folder / "run", host)
        check_or_report(folder / "run", host)
    assert landed == len(points)


def check_or_report(folder: Path, host: FileHost) -> None:
    """A run that died after run.finished has no report yet: everything else must hold."""
    if not (folder / "report.json").exists():
        assert host.count() == 10
        return
    check(folder, host)


@pytest.mark.parametrize("tool", ["put", "add", "smash"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_killed_around_an_effect(tmp_path: Path, tool: str, where: str) -> None:
    order = {"put": 1, "add": 2, "smash": 3}[tool]
    seen = [0]

    def hook(place: str) -> None:
        seen[0] += place == where
        if place == where and seen[0] == order:
            die()

    host = FileHost(path=tmp_path / "effects", hook=hook)
    assert in_a_child(partial(attempt, tmp_path / "run", host)) == signal.SIGKILL
    calm = FileHost(path=tmp_path / "effects")
    to_the_end(tmp_path / "run", calm)
    check(tmp_path / "run", calm)


def test_killed_again_and_again(tmp_path: Path) -> None:
    """Every process of the run dies after a few writes more, until one comes through."""
    host = FileHost(path=tmp_path / "effects")
    folder = tmp_path / "run"
    deaths = int(in_a_child(partial(attempt, folder, host, disk=deadly_disk(6, "after the write"))) == signal.SIGKILL)
    for round_ in range(40):
        last = read_log(folder).events[-1]
        if last.type == "run.finished" and last.data["status"] == "verified":
            break
        if last.type == "run.finished":
            operator_looks(folder, host)
        disk = deadly_disk(8 + round_ % 4, PHASES[1 + round_ % 3])
        deaths += in_a_child(partial(attempt, folder, host, resume=True, disk=disk)) == signal.SIGKILL
    assert deaths >= 5
    assert host.count() == 10
    check_or_report(folder, host)
