"""Which events of a run a reader wants: of a step, of a kind, that say something."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from opsagent.protocols import Event
from opsagent.transcript import Transcript, kind_of

PROBLEMS = "problems"
"""Not a kind of its own: whatever went wrong."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What must hold of an event, all of it."""

    step: str = ""
    kind: str = ""
    """One of `transcript.KINDS`, or `problems`."""
    pattern: re.Pattern[str] | None = None
    """Searched in the event's line and in its data."""

    @property
    def all(self) -> bool:
        return not self.step and not self.kind and self.pattern is None

    def pick(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events that are wanted, in order."""
        lines, step, left = Transcript(everything=True), "", False
        for event in events:
            if event.type == "step.entered":
                step, left = str(event.data.get("step")), False
            elif left:
                step = ""
            left = event.type == "step.left"
            if self._wants(event, step, lines):
                yield event

    def _wants(self, event: Event, step: str, lines: Transcript) -> bool:
        line = lines.line(event)  # also for those of other steps: it learns the names of calls
        if line is None or (self.step and step != self.step):
            return False
        if self.kind == PROBLEMS and line.style != "bad":
            return False
        if self.kind not in ("", PROBLEMS) and kind_of(event.type) != self.kind:
            return False
        pattern = self.pattern
        return pattern is None or bool(pattern.search(line.text) or pattern.search(dump(event)))


def dump(event: Event) -> str:
    """An event's data as text to search in."""
    return json.dumps(event.data, ensure_ascii=False)


def excerpt(event: Event, pattern: re.Pattern[str], around: int = 60) -> str:
    """What was found in an event's data, with a little of what stands beside it; '' when it is not there."""
    text = dump(event)
    found = pattern.search(text)
    if found is None:
        return ""
    begin, end = max(0, found.start() - around), min(len(text), found.end() + around)
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"
