"""A journal in memory: for tests, and for a replay, whose events are only compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from opsagent.journal.format import encode
from opsagent.journal.state import RunState
from opsagent.journal.writer import Chain, Observer, utc_now
from opsagent.protocols import Event
from opsagent.redact import Redactor
from opsagent_tools.errors import TranscriptDamaged


class MemoryJournal:
    """The same as a FileJournal, without its disk."""

    def __init__(
        self,
        redactor: Redactor | None = None,
        *,
        now: Callable[[], str] = utc_now,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._chain = Chain(redactor or Redactor(), now)
        self._events: list[Event] = []
        self._observers = tuple(observers)
        self.blobs: dict[str, bytes] = {}

    @property
    def state(self) -> RunState:
        return self._chain.state

    @property
    def redactor(self) -> Redactor:
        return self._chain.redactor

    def append(self, type: str, /, **data: Any) -> Event:
        event, line = self._chain.make(type, data)
        self._events.append(event)
        self._chain.stored(event, line)
        for observer in self._observers:
            observer(event)
        told = self._chain.redactions(event)
        if told is not None:
            self.append("redaction.applied", **told)
        return event

    def take(self, event: Event) -> Event:
        """Take an event over as it is (it was recorded, so it is clean): the fold sees it, observers do not."""
        self._events.append(event)
        self._chain.stored(event, encode(event))
        return event

    def blob(self, data: bytes, *, name: str = "") -> str:
        safe, hits = self.redactor.data(data)
        self._chain.untold.update(hits)
        sha256 = hashlib.sha256(safe).hexdigest()
        self.blobs[sha256] = safe
        return sha256

    def read_blob(self, sha256: str) -> bytes:
        try:
            return self.blobs[sha256]
        except KeyError:
            raise TranscriptDamaged(f"blob {sha256[:12]}… is missing") from None

    def events(self) -> Iterator[Event]:
        return iter(tuple(self._events))
