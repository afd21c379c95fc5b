"""Replaying one recording: the loop of today over what was recorded."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from opsagent.again import roll_back, stop_server
from opsagent.autopilot import Autopilot
from opsagent.models.replay import ReplayModel
from opsagent.progress import Progress
from opsagent.protocols import Event, Journal, Model
from opsagent.replay.journal import Cut, ReplayJournal
from opsagent.replay.parts import Matches, NoHost, NoTime, ReplayBudget, ReplayGate, ReplayTools, ReplayWatch
from opsagent.replay.recording import Diverged, Recording
from opsagent.run import Run
from opsagent.session import Session, all_tools, conduct
from opsagent_tools.tool import Tool

Mode = Literal["strict", "sequential", "loose"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay found."""

    mode: Mode
    events: int
    """Events that were made again."""
    recorded: int
    status: str
    recorded_status: str
    divergence: Diverged | None = None
    differences: tuple[str, ...] = ()
    """Where arguments differ from the recorded ones (not strict)."""
    incomplete: bool = False
    """The recording ends without an end: its process died."""

    @property
    def ok(self) -> bool:
        return self.divergence is None and (self.incomplete or self.status == self.recorded_status)


def replay(
    recording: Recording,
    mode: Mode = "strict",
    *,
    model: Model | None = None,
    tools: Mapping[str, Tool[Any, Any]] | None = None,
) -> Outcome:
    """Run the loop again. `model` decides instead of the recorded one (results stay recorded); `tools`: today's, by name.

    strict: every event must be equal · sequential: calls must have the recorded tools in the recorded order · loose: each
    call takes the result of the most similar recorded one. The last two prove less, and say so.
    """
    journal = ReplayJournal(recording, strict=mode == "strict")
    matches = Matches(recording, mode)
    recorded = ReplayTools(recording, journal, mode, matches)
    divergence: Diverged | None = None
    try:
        while True:
            gate = ReplayGate(recording, journal, mode, matches)
            _process(recording, journal, recorded, gate, model, all_tools() if tools is None else tools)
            if not journal.take_outside():
                break
        left = journal.upcoming
        if left is not None:
            raise Diverged(f"the replay ends where the recording goes on with {left.id} {left.type}", event=left.id)
    except Diverged as signal:
        divergence = signal
    return Outcome(
        mode, journal.state.seq, len(recording.events), journal.state.status, recording.state.status, divergence,
        tuple(recorded.differences), incomplete=not recording.state.status,
    )  # fmt: skip


def _process(
    recording: Recording,
    journal: ReplayJournal,
    tools: ReplayTools,
    gate: ReplayGate,
    model: Model | None,
    real: Mapping[str, Tool[Any, Any]],
) -> None:
    """One process of the recorded run, from its start (or resume) to its end or death."""
    started, begun = recording.started, next(reversed(list(journal.events())))
    roles = {str(role): str(name) for role, name in (started.get("hosts") or {}).items()}
    run = Run(
        id=str(started.get("run", "")), runbook=recording.runbook(journal.process_end),
        system=recording.system(), journal=cast(Journal, journal), gate=gate,
        tools=tools.tools(real), role_names=roles, open_host=lambda role: NoHost(roles.get(role, role)),
        progress=Progress.of(journal.events()), clock=NoTime(), simulated=bool(started.get("simulated")),
        dry=bool(started.get("dry")), execute_tool=tools.execute,
    )  # fmt: skip
    run.budget, run.watch = ReplayBudget(journal), ReplayWatch(journal)
    run.stopped = lambda: _interrupted(journal)
    with tempfile.TemporaryDirectory(prefix="opsagent-replay-") as folder:
        deciding = model or _recorded_model(recording, run)
        session = Session(run, deciding, Path(folder), cast(Any, journal), cast(Any, None))
        try:
            _conduct(session, begun)
        except Cut:
            return


def _conduct(session: Session, begun: Event) -> None:
    """What the recorded process did: follow the runbook, or end the server, or take back what was done."""
    mode = begun.data.get("mode") if begun.type == "run.resumed" else ""
    if mode == "stop":
        stop_server(session)
    elif mode == "rollback":
        roll_back(session)
    else:
        conduct(session)


def _recorded_model(recording: Recording, run: Run) -> Model:
    if recording.model == "autopilot":
        return Autopilot(run)
    made = ReplayModel(recording)
    made.skip(sum(event.type == "model.request" for event in run.journal.events()))
    return made


def _interrupted(journal: ReplayJournal) -> bool:
    coming = journal.upcoming
    return coming is not None and coming.type == "run.finished" and coming.data.get("exit_code") == 130
