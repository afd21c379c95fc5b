"""The protocols of the agent. (`Host` is the third; it lives with the tools.) Everything else is a function or a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from opsagent.call import Call, Decision, Verdict

if TYPE_CHECKING:
    from opsagent.journal.state import RunState
    from opsagent.redact import Redactor

Message = dict[str, Any]
"""One Chat Completions message (`role`, `content`, `tool_calls`, `tool_call_id`)."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it: `arguments` is the raw text (or object), not yet validated. Never repaired."""

    id: str
    name: str
    arguments: str | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model. `usage` is {} when the endpoint did not say."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    reasoning: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the client had to tolerate (a missing index, an object instead of a string …); journaled."""


class Model(Protocol):
    """Chooses the next calls: an LLM, the autopilot, or a recorded run.

    Raises ModelUnavailable (transient) or ModelUnusable (refuses, malformed beyond the cap).
    """

    @property
    def name(self) -> str: ...

    def next(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Reply: ...


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal."""

    seq: int
    ts: str
    type: str
    data: dict[str, Any]
    prev: str
    """sha256 of the previous line's bytes ('' for the first)."""

    @property
    def id(self) -> str:
        return f"e{self.seq}"


class Journal(Protocol):
    """Append-only event log of one run, with blobs beside it. State is a fold over `events()`.

    `append` has flushed to disk when it returns, or raises JournalError; what it stores is already redacted.
    """

    @property
    def state(self) -> RunState: ...

    @property
    def redactor(self) -> Redactor:
        """Cleans what does not go through the journal: progress, the screen, error texts."""
        ...

    def append(self, type: str, /, **data: Any) -> Event: ...

    def blob(self, data: bytes, *, name: str = "") -> str:
        """Store bytes (redacted) by their sha256 and return it."""
        ...

    def read_blob(self, sha256: str) -> bytes: ...

    def events(self) -> Iterator[Event]: ...


class Approver(Protocol):
    """Decides on a call that the mode does not let through by itself: a person, the lab's scenario, a file, nobody."""

    def decide(self, call: Call, verdict: Verdict, *, rollback: str = "", diff: str = "") -> Decision: ...
