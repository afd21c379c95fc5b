"""The scenarios that are quick, run by the autopilot through the real loop: the oracle looks at hosts and report.

(The default scenario has tests of its own: it takes half a minute.)
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsagent.checked import checked_runbook
from opsagent.data import find_runbook
from opsagent.places import lab_places
from opsagent.session import Wish, begin, conduct
from opsagent_lab import scenario

QUICK = ["dense", "takeover", "takeover-failed", "hostile", "decommission", pytest.param("moe", marks=pytest.mark.soak)]


@pytest.mark.parametrize("name", QUICK)
def test_the_autopilot_reaches_the_goal(name: str, tmp_path: Path) -> None:
    book = checked_runbook(find_runbook(f"runbooks/{scenario.load(name).runbook}.md"))
    places = lab_places(book, name)
    lab = places.lab
    places.closers.clear()  # the oracle looks at the hosts after the run
    try:
        with begin(Wish(runbook=book, places=places, folder=tmp_path / "run")) as session:
            conduct(session)
        report = json.loads((tmp_path / "run" / "report.json").read_text())
        assert lab.oracle(report) == []
        assert report["exit_code"] == 0
    finally:
        lab.close()
