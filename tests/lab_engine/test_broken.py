"""Launches that are broken in thirteen ways: each is named and repaired by the autopilot, no load of weights is wasted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsagent.checked import checked_runbook
from opsagent.data import find_runbook
from opsagent.places import lab_places
from opsagent.session import Wish, begin, conduct
from opsagent_lab import scenario

BROKEN = [name for name in scenario.names() if name.startswith("broken-")]


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 12


@pytest.mark.parametrize("name", BROKEN)
def test_it_is_repaired(name: str, tmp_path: Path) -> None:
    # no faster: deadlines of the tools are in simulated seconds, and a busy machine must still meet them
    fast = tmp_path / f"{name}.toml"
    fast.write_text(f'extends = "{name}"\nspeed = 150.0\n')
    places = lab_places(checked_runbook(find_runbook("runbooks/launch.md")), str(fast))
    lab = places.lab
    places.closers.clear()  # the oracle looks at the hosts after the run
    try:
        book = checked_runbook(find_runbook("runbooks/launch.md"))
        with begin(Wish(runbook=book, places=places, folder=tmp_path / "run")) as session:
            conduct(session)
        report = json.loads((tmp_path / "run" / "report.json").read_text())
        assert report["exit_code"] == 0, report["failed"]
        assert lab.oracle(report) == []
    finally:
        lab.close()
