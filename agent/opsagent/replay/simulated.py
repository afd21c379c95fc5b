"""Recorded decisions against simulated hosts: it tests the tools and the lab, where a replay tests the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsagent.divergence import parting
from opsagent.journal.runs import open_run
from opsagent.replay.recording import Recording
from opsagent.session import Wish, begin, conduct
from opsagent_tools.errors import InputError


@dataclass(frozen=True, slots=True)
class Simulated:
    """How the run went this time."""

    folder: Path
    status: str
    recorded_status: str
    parted: dict[str, Any] | None
    """The first divergence from the recorded course (see opsagent.divergence)."""

    @property
    def ok(self) -> bool:
        return self.parted is None and self.status == self.recorded_status


def simulate(
    recording: Recording, folder: Path | None = None, *, notice: Callable[[str], None] = lambda _text: None
) -> Simulated:
    """Run the recorded replies on the scenario that the run was recorded on; `folder` gets the new run (None: a fresh one).

    Raises InputError for a run on real hosts: there a replay never touches anything.
    """
    from opsagent.places import lab_places

    scenario = str(recording.started.get("lab") or "")
    if not scenario:
        raise InputError(
            "this run was recorded on real hosts, and --sim needs a scenario",
            where=str(recording.folder),
            hint="plain `opsagent replay` uses the recorded results",
        )
    book = recording.runbook()
    places = lab_places(book, scenario)
    wish = Wish(
        runbook=book, places=places, params=dict(recording.started.get("params") or {}),
        llm=f"replay:{recording.folder}", folder=folder, dry=bool(recording.started.get("dry")), notice=notice,
    )  # fmt: skip
    try:
        session = begin(wish)
    except BaseException:
        places.close()
        raise
    with session:
        report = conduct(session)
    new = open_run(session.folder)
    parted = parting(recording.events, new.log.events)
    return Simulated(session.folder, report.status, recording.state.status, parted)
