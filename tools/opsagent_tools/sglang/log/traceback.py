"""Tracebacks out of a stream of lines: frames, exceptions and the chain between them, even when other lines come between."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["", "header", "frame", "code", "exception", "chain"]

_HEADER = "Traceback (most recent call last)"
_FRAME = re.compile(r"\s*File \"([^\"]+)\"(?:, line (\d+))?(?:, in (\S+))?")
_CHAIN = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_EXCEPTION = re.compile(
    r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]?\w*"
    r"(?:Error|Exception|Interrupt|SystemExit|OutOfResources|Timeout|IsEnabled|NotFound|Failure|Abort))"
    r"(?:: ?(.*)|\s*)$"
)
_ANY_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*)|\s*)$")
OPEN_FOR = 400
"""Lines after which an unfinished traceback is given up: its end was cut off or lies in another file."""


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception of a chain, in printed order: the first is the original, later ones were raised because of it."""

    line: int
    type: str
    message: str
    frames: tuple[Frame, ...]


@dataclass(slots=True)
class Block:
    """One traceback, or several chained ones."""

    number: int
    line: int
    raised: list[Raised] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)


class Assembler:
    """Fed line by line; says which block a line belongs to and what it is there."""

    def __init__(self) -> None:
        self.count = 0
        self.block: Block | None = None
        self._last = 0
        self._chained = False
        self.open = False

    def feed(self, number: int, body: str, *, stamped: bool) -> tuple[Block | None, Role]:
        """`body` is the line without its head; `stamped` says that it had a time, so that it starts a record."""
        if self.open and number - self._last > OPEN_FOR:
            self.open = False
        if _HEADER in body:
            return self._begin(number), "header"
        if found := _FRAME.match(body):
            block = self.block if self.open and self.block else self._begin(number)
            block.frames.append(Frame(found[1], int(found[2] or 0), found[3] or ""))
            self._last = number
            return block, "frame"
        if _CHAIN.search(body) and self.block is not None:
            self._chained = True
            return self.block, "chain"
        if stamped and not (self.open and _EXCEPTION.match(body)):
            return None, ""
        return self._rest(number, body)

    def _rest(self, number: int, body: str) -> tuple[Block | None, Role]:
        indented = body[:1].isspace()
        if self.open and self.block is not None:
            if indented or not body:
                return self.block, "code"
            loose = _ANY_EXCEPTION if self.block.frames and number - self._last <= 3 else _EXCEPTION
            if found := _EXCEPTION.match(body) or loose.match(body):
                return self._end(number, found[1], found[2] or ""), "exception"
            return None, ""
        if not indented and (found := _EXCEPTION.match(body)):
            self._begin(number)
            return self._end(number, found[1], found[2] or ""), "exception"
        return None, ""

    def _begin(self, number: int) -> Block:
        if self.block is None or not self._chained:
            self.count += 1
            self.block = Block(self.count, number)
        self._chained, self.open, self._last = False, True, number
        self.block.frames = []
        return self.block

    def _end(self, number: int, kind: str, message: str) -> Block:
        assert self.block is not None
        self.block.raised.append(Raised(number, kind, message, tuple(self.block.frames)))
        self.open = False
        return self.block
