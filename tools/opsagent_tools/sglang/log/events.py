"""A log as events: one record each, with its time, rank, level, traceback block and the launch that it belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from opsagent_tools.sglang.log.head import Head, parse_head
from opsagent_tools.sglang.log.lines import Source, numbered, segments
from opsagent_tools.sglang.log.traceback import Assembler, Block, Role

_DIGITS = b"0123456789"
_SHAPES = 20_000
_BATCH = ("prefill batch", "decode batch", "verify batch")
_DULL, _BATCHES, _SERVED = 0, 1, 2
_OFTEN = 1000
"""A shape that was looked at so often says nothing new."""
SAME_LAUNCH_S = 2 * 3600.0
"""Two records of one server are rarely further apart in a start-up log; two servers' logs usually are."""


@dataclass(slots=True)
class Event:
    """One record. `line` is 1-based; `text` has no head, colours or progress bar; `launch` numbers the server starts."""

    line: int
    text: str
    head: Head
    launch: int
    block: Block | None = None
    role: Role = ""
    raw: bytes = b""
    """The whole physical line, for quoting."""


@dataclass(slots=True)
class Skimmed:
    """What is remembered of the lines that were not looked at one by one."""

    lines: int = 0
    batch_line: int = 0
    batch: str = ""
    batches: int = 0
    last: bytes = b""
    served_line: int = 0
    """The newest request that was answered with 2xx."""


@dataclass(slots=True)
class Launches:
    """Which server start a record belongs to: by its time when several logs are mixed, by the argument line in one log."""

    current: int = 0
    count: int = 1
    last_time: dict[int, float] = field(default_factory=dict)
    argued: set[int] = field(default_factory=set)

    def place(self, head: Head, text: str) -> int:
        if head.time is not None:
            near = [n for n, t in self.last_time.items() if abs(head.time - t) <= SAME_LAUNCH_S]
            if self.current in near or not self.last_time:
                pass
            elif near:
                self.current = near[-1]
            else:
                self._new()
            self.last_time[self.current] = head.time
        if "server_args=" in text and "ServerArgs(" in text:
            if self.current in self.argued:
                del self.last_time[self.current]
                self._new()
                if head.time is not None:
                    self.last_time[self.current] = head.time
            self.argued.add(self.current)
        return self.current

    def _new(self) -> None:
        self.current, self.count = self.count, self.count + 1
        if len(self.last_time) > 64:
            del self.last_time[next(iter(self.last_time))]


def events(
    source: Source, *, wanted: Callable[[str], bool] | None = None, skimmed: Skimmed | None = None
) -> Iterator[Event]:
    """Every record of `source` in order.

    With `wanted` (asked with the lower-cased line), lines of an unwanted shape are passed over once it is known: a
    shape is the line without its digits, so `wanted` must not depend on digits. That makes the long tail of a
    serving log cheap; the newest batch line stays in `skimmed`.
    """
    seen = skimmed if skimmed is not None else Skimmed()
    shapes: dict[bytes, int] = {}
    often: Counter[bytes] = Counter()
    tracebacks, launches = Assembler(), Launches()
    for number, raw in numbered(source):
        seen.lines, seen.last = number, raw
        shape = b""
        if wanted is not None and not tracebacks.open:
            shape = raw.translate(None, _DIGITS)
            kind = shapes.get(shape)
            if kind is not None:
                if kind == _BATCHES:
                    seen.batch_line = number
                    seen.batches += 1
                elif kind == _SERVED:
                    seen.served_line = number
                continue
        dull, kind = wanted is not None and not tracebacks.open, _DULL
        for text in segments(raw):
            lowered = text.lower()
            head = parse_head(text)
            body = text[head.body :].rstrip()
            launch = launches.place(head, body)
            block, role = tracebacks.feed(number, body, stamped=head.time is not None)
            kind = _kind(lowered)
            if kind == _BATCHES:
                seen.batch_line, seen.batch = number, text
                seen.batches += 1
            elif kind == _SERVED:
                seen.served_line = number
            if wanted is None or role or wanted(lowered):
                dull = dull and kind != _DULL
                yield Event(number, body, head, launch, block, role, raw)
        if shape and not dull and not tracebacks.open:
            often[shape] += 1
            dull = often[shape] > _OFTEN
        if dull:
            if len(shapes) >= _SHAPES:
                shapes.clear()
                often.clear()
            shapes[shape] = kind


def _kind(lowered: str) -> int:
    """Lines that a serving log consists of: of each shape one is looked at, of the rest only the newest is remembered."""
    if any(word in lowered for word in _BATCH):
        return _BATCHES
    return _SERVED if 'http/1.1" 200 ok' in lowered else _DULL
