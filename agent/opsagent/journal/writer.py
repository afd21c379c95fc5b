"""What every journal does before storing: redact, clean, number, chain; and after: fold the state, tell the observers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from opsagent.journal.fold import apply
from opsagent.journal.format import EVENT_TYPES, clean, digest, encode
from opsagent.journal.state import RunState
from opsagent.protocols import Event
from opsagent.redact import Redactor

Observer = Callable[[Event], None]
"""Sees each event after it was stored; the live view is one."""


def utc_now() -> str:
    """Now, as events say it: UTC with milliseconds, `2026-03-01T10:20:30.123Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@dataclass
class Chain:
    """The next event's place, and the redactions that were not told yet."""

    redactor: Redactor
    now: Callable[[], str] = utc_now
    state: RunState = field(default_factory=RunState)
    head: str = ""
    seq: int = 0
    untold: Counter[str] = field(default_factory=Counter)

    def make(self, type: str, data: dict[str, Any]) -> tuple[Event, bytes]:
        """The next event and its line. Nothing is changed yet but the count of redactions."""
        if type not in EVENT_TYPES:
            raise ValueError(f"not an event type: {type!r}")
        safe, hits = self.redactor.value(clean(data))
        if type != "redaction.applied":
            self.untold.update(hits)
        event = Event(self.seq + 1, self.now(), type, safe, self.head)
        return event, encode(event)

    def stored(self, event: Event, line: bytes) -> None:
        """The event is on disk: it is part of the run now."""
        self.seq, self.head = event.seq, digest(line)
        apply(self.state, event)

    def redactions(self, event: Event) -> dict[str, Any] | None:
        """Data of the `redaction.applied` that must follow: rules and counts, never values."""
        if not self.untold or event.type == "redaction.applied":
            return None
        rules = dict(sorted(self.untold.items()))
        self.untold.clear()
        return {"rules": rules, "by": event.id}
