"""Hundreds of real deaths and of links cut at random bytes, on a host that goes on meanwhile: nothing doubled, nothing lost.

The run has one call of every recovery class. It is killed with SIGKILL at every write of its journal (before it, in it,
after it, after the flush) and at every command, when the host has carried it out and the run does not know yet. Every kill
and every cut is counted that really landed. The everyday run takes a few of them, `pytest -m soak` all.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from kill.deadly import PHASES, deadly_disk
from kill.small import effects, hosts_file, small_lab, start, to_the_end

from opsagent.again import OVER, missing_report
from opsagent.journal.disk import Disk
from opsagent.journal.runs import open_run
from opsagent.replay.recording import Recording
from opsagent.replay.run import replay
from opsagent.verify import verify
from opsagent_lab.faults import Fault
from opsagent_lab.lab import Lab
from opsagent_tools.errors import OpsError

ONCE = {"ledger": "first\nsecond\n", "note": "written\n", "once": "dir", "old server": False, "jobs": 1, "writes": 1}
"""What every run, however disturbed, must have done: each effect once."""
WAYS: tuple[Literal["up", "down"], ...] = ("up", "down")


@dataclass
class Tally:
    """What really happened, for the assertion and for the line at the end."""

    asked: int = 0
    landed: int = 0
    needed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def line(self, what: str) -> str:
        took = ", ".join(f"{self.needed[each]} {each}" for each in ("resumes", "looks at the host", "late reports"))
        return f"{what}: {self.landed} of {self.asked} landed, {len(self.wrong)} doubled or lost; it took {took}"


@contextmanager
def said(tally: Tally, what: str, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    with capsys.disabled():
        print(f"\n{tally.line(what)}")
    assert tally.wrong == []
    assert tally.landed == tally.asked


def child(folder: Path, hosts: str, at: int, phase: str) -> None:
    """One process of a run; `at` 0: it does not kill itself."""
    start(folder, hosts, deadly_disk(at, phase) if at else None)


def spawn(folder: Path, hosts: str, at: int = 0, phase: str = "") -> multiprocessing.process.BaseProcess:
    """From a server that has imported everything and has no threads: neither slow nor able to hang."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kill.test_small"])
    process = context.Process(target=child, args=(folder, hosts, at, phase))
    process.start()
    return process


def judge(tally: Tally, name: str, folder: Path, lab: Lab) -> None:
    """Go on to the end, and look at the host, the journal and its replay."""
    try:
        if open_run(folder).state.status not in OVER:
            tally.needed.update(to_the_end(folder, lab))
    except (AssertionError, OpsError) as error:
        tally.wrong.append(f"{name}: {error}")
        return
    tally.needed["late reports"] += missing_report(str(folder)) is not None
    found, again = verify(folder), replay(Recording.open(folder))
    if effects(lab) != ONCE:
        tally.wrong.append(f"{name}: {effects(lab)}")
    if not found.ok:
        tally.wrong.append(f"{name}: {found.findings}")
    if not again.ok:
        tally.wrong.append(f"{name}: {again.divergence}")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How many writes, commands and bytes a whole run takes."""
    folder = tmp_path_factory.mktemp("whole")
    counts: Counter[str] = Counter()

    def write(fd: int, data: bytes) -> int:
        counts["writes"] += 1
        return os.write(fd, data)

    with small_lab(folder) as lab:
        for way in WAYS:
            lab.faults.add(Fault("drop", "box", byte=1 << 40, direction=way))
        lab.server.after_command = lambda: counts.update(commands=1)
        report = start(folder / "run", hosts_file(lab, folder), Disk(write=write))
        assert (report.status, effects(lab)) == ("verified", ONCE)
        counts.update({way: armed.seen for way, armed in zip(WAYS, lab.faults.armed, strict=True)})
    return dict(counts)


def killed_at_write(tally: Tally, folder: Path, at: int, phase: str) -> None:
    folder.mkdir()
    with small_lab(folder) as lab:
        process = spawn(folder / "run", hosts_file(lab, folder), at, phase)
        process.join()
        tally.asked += 1
        tally.landed += process.exitcode == -signal.SIGKILL
        judge(tally, f"write {at}, {phase}", folder / "run", lab)


def killed_at_command(tally: Tally, folder: Path, at: int) -> None:
    """The host has carried the command out; the run dies before it hears of it."""
    folder.mkdir()
    with small_lab(folder) as lab:
        seen = [0]
        process = spawn(folder / "run", hosts_file(lab, folder))

        def count() -> None:
            seen[0] += 1
            if seen[0] == at and process.pid:
                os.kill(process.pid, signal.SIGKILL)

        lab.server.after_command = count
        process.join()
        lab.server.after_command = lambda: None
        tally.asked += 1
        tally.landed += process.exitcode == -signal.SIGKILL
        judge(tally, f"command {at}", folder / "run", lab)


def cut_at_byte(tally: Tally, folder: Path, at: int, way: Literal["up", "down"]) -> None:
    folder.mkdir()
    with small_lab(folder) as lab:
        lab.faults.add(Fault("drop", "box", byte=at, direction=way))
        report = start(folder / "run", hosts_file(lab, folder))
        if report.exit_code == 7:
            tally.needed.update(to_the_end(folder / "run", lab, report))
        tally.asked += 1
        tally.landed += lab.faults.struck >= 1
        judge(tally, f"byte {at} {way}", folder / "run", lab)


SLICES = 4


@pytest.mark.parametrize("part", ["few", *(pytest.param(n, marks=pytest.mark.soak) for n in range(SLICES))])
def test_killed(
    part: str | int, undisturbed: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writes = [(at, phase) for at in range(1, undisturbed["writes"] + 1) for phase in PHASES]
    commands = list(range(1, undisturbed["commands"] + 1))
    if isinstance(part, int):
        writes, commands = writes[part::SLICES], commands[part::SLICES]
        assert len(writes) + len(commands) >= 200 // SLICES
    else:
        writes, commands = writes[41 :: len(writes) // 3], commands[20 :: len(commands) // 2]
    tally = Tally()
    with said(tally, f"SIGKILL ({part})", capsys):
        for at, phase in writes:
            killed_at_write(tally, tmp_path / f"{at}-{PHASES.index(phase)}", at, phase)
        for at in commands:
            killed_at_command(tally, tmp_path / f"c{at}", at)


@pytest.mark.parametrize("part", ["few", *(pytest.param(n, marks=pytest.mark.soak) for n in range(SLICES))])
def test_cut(part: str | int, undisturbed: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = 50 if isinstance(part, int) else 3
    rng = random.Random(str(part))
    tally = Tally()
    with said(tally, f"links cut at random bytes ({part})", capsys):
        for number in range(count):
            way = rng.choice(WAYS)
            cut_at_byte(tally, tmp_path / str(number), rng.randrange(1, undisturbed[way]), way)
