"""A recorded run as the model: the same answers again, at the same places."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsagent.protocols import Message, Reply
from opsagent.replay.recording import Diverged, Recording
from opsagent_tools.errors import OpsError, TranscriptDamaged


class ReplayModel:
    """Answers request n with recorded reply n. Whether the request is the recorded one, the replay's journal judges."""

    def __init__(self, recording: Recording, *, signal: bool = True) -> None:
        self._replies = list(recording.replies())
        self._next = 0
        self._signal = signal
        self.name = recording.model
        self.reads = recording.model != "autopilot"

    def next(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Reply:
        if self._next >= len(self._replies):
            what = f"request {self._next + 1} was never recorded: the recording has {len(self._replies)}"
            if self._signal:
                raise Diverged(what)
            raise TranscriptDamaged(what, hint="the hosts answered differently from the recorded run")
        _request, reply = self._replies[self._next]
        self._next += 1
        if isinstance(reply, OpsError):
            raise reply
        return reply

    def skip(self, count: int) -> None:
        """Go on behind the first `count` replies: another process had them."""
        self._next = count


def recorded_model(ref: str | Path) -> ReplayModel:
    """The model of `--llm replay:RUN`: recorded decisions, on hosts that answer by themselves."""
    return ReplayModel(Recording.open(ref), signal=False)
