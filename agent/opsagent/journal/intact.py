"""A run as far as it can be read: for people who look at a damaged one. Resume, replay and verify want all of it."""

from __future__ import annotations

from pathlib import Path

from opsagent.journal.fold import apply
from opsagent.journal.format import damaged
from opsagent.journal.reader import EVENTS, Log, journal_bytes, parse_intact
from opsagent.journal.runs import Opened, find_run
from opsagent.journal.state import RunState
from opsagent_tools.errors import TranscriptDamaged


def open_intact(ref: str | Path, *, root: Path | None = None) -> tuple[Opened, TranscriptDamaged | None]:
    """The events before the first damaged line, and what is wrong with it. Raises InputError, JournalError."""
    folder = ref if isinstance(ref, Path) else find_run(ref, root=root)
    where = str(folder / EVENTS)
    log, damage = parse_intact(journal_bytes(folder), where)
    state = RunState()
    for event in log.events:
        try:
            apply(state, event)
        except (ValueError, TypeError, KeyError, AttributeError):  # whole lines, but of a stranger's making
            log = Log(log.events[: event.seq - 1], head=event.prev, size=0)
            return Opened(folder, log, state), damaged(f"is no {event.type} that can be read", event.seq, where)
    return Opened(folder, log, state), damage
