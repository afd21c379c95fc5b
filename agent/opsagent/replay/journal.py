"""The journal of a replay: every event that the loop writes is held against the recorded one at the same place."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

from opsagent.journal.format import clean
from opsagent.journal.memory import MemoryJournal
from opsagent.journal.reader import read_blob
from opsagent.journal.state import RunState
from opsagent.journal.writer import utc_now
from opsagent.protocols import Event
from opsagent.redact import Redactor
from opsagent.replay.compare import as_old, comparable, first_difference
from opsagent.replay.recording import Diverged, Recording
from opsagent.signals import Signal

COPIED = frozenset(
    {
        "snapshot",
        "host.locked",
        "host.released",
        "bystanders",
        "redaction.applied",
        "call.progress",
        "model.retry",
        "context.compacted",
        "drift.accepted",
    }
)
"""Written by what a replay leaves out (hosts, redactor, client): taken over as recorded where the loop does not."""
OUTSIDE = COPIED | {"approval.decided", "call.reconciled", "note"}
"""What an operator may have added after the end."""


class Cut(Signal):
    """The recorded process died here."""


def is_torn_note(event: Event) -> bool:
    return event.type == "note" and event.data.get("kind") == "torn-line"


def is_end(event: Event) -> bool:
    """A process ends with run.finished, or died before the next one's first event."""
    return event.type in ("run.finished", "run.resumed") or is_torn_note(event)


class ReplayJournal:
    """Strict: a difference raises Diverged. Otherwise it only keeps what the loop writes."""

    def __init__(self, recording: Recording, *, strict: bool) -> None:
        self._recording, self._strict = recording, strict
        self._memory = MemoryJournal(now=self._now)
        self._intents = [event.seq for event in recording.intents()]
        self._ends = [e.seq - (e.type != "run.finished") for e in recording.events if is_end(e)]
        self._memory_append(recording.events[0])

    @property
    def state(self) -> RunState:
        return self._memory.state

    @property
    def redactor(self) -> Redactor:
        return self._memory.redactor

    @property
    def upcoming(self) -> Event | None:
        """The recorded event at the place of the next one; None behind the end (and in a replay that is not strict)."""
        place = self.state.seq
        return self._recording.events[place] if self._strict and place < len(self._recording.events) else None

    @property
    def process_end(self) -> int:
        """Number of recorded events up to the end (or death) of the recorded process that is at work here."""
        place = bisect.bisect_right(self._ends, self.state.seq)
        return self._ends[place] if place < len(self._ends) else len(self._recording.events)

    def ahead_of(self, call_id: str) -> Iterator[Event]:
        """Recorded events of a call from here to the end of the recorded process."""
        here, end = self.state.seq, self.process_end
        return (event for event in self._recording.by_call.get(call_id, ()) if here < event.seq <= end)

    def next_intent(self) -> Event | None:
        """The next call that the recorded process made. Raises Cut when it died before it."""
        place = bisect.bisect_right(self._intents, self.state.seq)
        events, end = self._recording.events, self.process_end
        if place < len(self._intents) and self._intents[place] <= end:
            return events[self._intents[place] - 1]
        if not end or events[end - 1].type != "run.finished":
            raise Cut("the recorded process died before this call")
        return None

    def lost_ahead(self) -> Event | None:
        """The recorded event that found a bystander lost, when nothing but what is copied stands before it."""
        for event in self._recording.events[self.state.seq :] if self._strict else ():
            if event.type not in COPIED:
                return None
            if event.data.get("lost"):
                return event
        return None

    def append(self, type: str, /, **data: Any) -> Event:
        if not self._strict:
            return self._memory.append(type, **data)
        self._copy_until(type)
        recorded = self.upcoming
        if recorded is None and not self._recording.state.status:
            raise Cut("the recording stops here")
        if recorded is not None and (recorded.type == "run.resumed" or is_torn_note(recorded)):
            raise Cut("the recorded process died here")
        made = Event(self.state.seq + 1, "", type, clean(data), "")
        if recorded is None or made.type != recorded.type or made.data != recorded.data:
            safe, _hits = self.redactor.value(made.data)
            self._hold_against(Event(made.seq, "", type, safe, ""), recorded)
        assert recorded is not None
        return self._memory_append(recorded)

    def _copy_until(self, type: str) -> None:
        while (event := self.upcoming) is not None and event.type != type:
            asked = self.state.seq and self._recording.events[self.state.seq - 1].type in (
                "model.request",
                "model.retry",
            )
            if event.type in COPIED or (event.type == "model.rejected" and asked):
                self._memory_append(event)
            else:
                return

    def _hold_against(self, made: Event, recorded: Event | None) -> None:
        if recorded is None:
            raise Diverged(f"the replay goes on with {made.type} where the recording ends", event=f"e{self.state.seq}")
        if made.type != recorded.type:
            raise Diverged(
                f"diverged at {recorded.id}: recorded {recorded.type}, now {made.type} {self._brief(made)}",
                event=recorded.id, hint=f"recorded: {self._brief(recorded)}",
            )  # fmt: skip
        data = as_old(recorded.data, made.type, made.data)
        data = self._recording.as_recorded(data) if made.type == "call.intent" else data
        found = first_difference(comparable(recorded.type, recorded.data), comparable(made.type, data))
        if found is None:
            return
        if made.type == "model.request":
            raise self._other_request(made, recorded, str(found))
        raise Diverged(
            f"diverged at {recorded.id} ({recorded.type}): {found}", event=recorded.id, hint=self._brief(recorded)
        )

    def _other_request(self, made: Event, recorded: Event, where: str) -> Diverged:
        """Tell a conversation that was never recorded from one that parts at some message."""
        first = recorded.id == next(e.id for e in self._recording.events if e.type == "model.request")
        if first and first_difference(made.data.get("new", [])[:1], recorded.data.get("new", [])[:1]) is not None:
            what = f"this conversation was never recorded; nearest is {recorded.id}: {where}"
        else:
            what = f"the request diverged from {recorded.id}, the nearest recorded one: {where}"
        return Diverged(
            what, event=recorded.id, hint="a changed prompt or tool needs a new recording, or --mode sequential"
        )

    @staticmethod
    def _brief(event: Event) -> str:
        call = event.data.get("call")
        if isinstance(call, dict):
            return f"{call.get('id')} {call.get('tool')}"
        words = (call, event.data.get("step"), event.data.get("expr"), event.data.get("what"))
        return " ".join(str(word) for word in words if word)[:120]

    def _now(self) -> str:
        place = self._memory.state.seq if hasattr(self, "_memory") else 0
        events = self._recording.events
        return events[place].ts if self._strict and place < len(events) else utc_now()

    def _memory_append(self, event: Event) -> Event:
        """Take a recorded event over, unknown types included, with its own time."""
        return self._memory.take(event)

    def take_outside(self) -> bool:
        """Take over what was written between two processes; whether another process went on."""
        ahead = self._recording.events[self.state.seq :] if self._strict else ()
        resumed = any(event.type == "run.resumed" for event in ahead)
        for event in ahead:
            if not resumed and event.type not in OUTSIDE:
                return False
            self._memory_append(event)
            if event.type == "run.resumed":
                return True
        return False

    def blob(self, data: bytes, *, name: str = "") -> str:
        return self._memory.blob(data, name=name)

    def read_blob(self, sha256: str) -> bytes:
        known = self._memory.blobs.get(sha256)
        return known if known is not None else read_blob(self._recording.folder, sha256)

    def events(self) -> Iterator[Event]:
        return self._memory.events()

    def close(self) -> None:
        return
