"""Links cut at random bytes and around random commands of a whole run: gone on with, it ends as the undisturbed one.

The everyday run takes one of them, `pytest -m soak` two hundred.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import opsagent_lab
from opsagent.again import reopened
from opsagent.checked import checked_runbook
from opsagent.data import find_runbook
from opsagent.places import lab_places
from opsagent.run import Silent
from opsagent.session import Wish, begin, conduct
from opsagent_lab.faults import Fault

BYTES = 400_000
"""About what one run of the scenario moves."""


def some_fault(rng: random.Random) -> Fault:
    if rng.random() < 0.5:
        way = rng.choice(("up", "down"))
        return Fault("drop", "gpu1", byte=rng.randrange(1, BYTES), direction=way)  # type: ignore[arg-type]
    when = rng.choice(("before", "during", "after"))
    return Fault("drop", "gpu1", command=rng.randrange(1, 120), when=when)  # type: ignore[arg-type]


def disturbed(folder: Path, seed: int) -> int:
    """A run with one cut link, and what it takes to end it; returns how often a link was cut."""
    book = checked_runbook(find_runbook("runbooks/launch.md"))
    places = lab_places(book, "dense")
    faults = places.lab.faults
    faults.add(some_fault(random.Random(seed)))
    with begin(Wish(runbook=book, places=places, folder=folder)) as session:
        report = conduct(session)
    for _ in range(4):
        if report.exit_code == 0:
            break
        assert faults.struck, report.status
        with reopened(str(folder), mode="resume", watcher=lambda _wish: Silent()) as session:
            report = conduct(session)
    assert report.exit_code == 0, report.status
    return int(faults.struck)


SEEDS = [5, *(pytest.param(n, marks=pytest.mark.soak) for n in range(200) if n != 5)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_link_changes_nothing_in_the_end(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    struck = disturbed(folder, seed)
    report = json.loads((folder / "report.json").read_text())
    with opsagent_lab.open("dense", state=folder / "lab.json") as lab:
        assert lab.oracle(report) == []
        assert lab.world.host("gpu1").counters["launches"] == 1
    assert struck <= 1
