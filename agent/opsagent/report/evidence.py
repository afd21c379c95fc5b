"""What a report is made from: the finished calls of a run, and the events that prove what they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opsagent.journal.state import CallState, RunState
from opsagent.protocols import Event


@dataclass(frozen=True)
class Evidence:
    """The finished calls of a run, newest last, by tool."""

    state: RunState
    events: Sequence[Event]
    calls: dict[str, list[CallState]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: RunState, events: Sequence[Event]) -> Evidence:
        calls: dict[str, list[CallState]] = {}
        for call in state.calls.values():
            if call.status == "finished" and isinstance(call.result, dict):
                calls.setdefault(call.call.tool, []).append(call)
        return cls(state, events, calls)

    def last(self, tool: str, *, ok: bool | None = None) -> CallState | None:
        found = [call for call in self.calls.get(tool, []) if ok is None or call.ok is ok]
        return found[-1] if found else None


def proof(call: CallState | None) -> list[str]:
    """The event that holds the call's result."""
    event = call.events.get("call.finished") if call is not None else None
    return [event] if event else []
