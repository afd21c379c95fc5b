"""What a viewer shows, as values: terminal and HTML draw the same ones. Texts are plain; who draws them escapes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from opsagent.transcript import Kind, Style

Shape = Literal["text", "data", "thinking", "output"]


@dataclass(frozen=True, slots=True)
class Fold:
    """Something long that belongs to an event: arguments, a result, thinking, a kept output."""

    title: str
    text: str
    shape: Shape = "data"
    left_out: int = 0
    """Characters that are not here: they stood between `text` and `tail`."""
    tail: str = ""
    whole: str = ""
    """The command that prints all of it."""

    @property
    def size(self) -> int:
        """Characters of the whole text."""
        return len(self.text) + self.left_out + len(self.tail)


@dataclass(frozen=True, slots=True)
class Row:
    """One event."""

    event: str
    time: str
    """`HH:MM:SS`, UTC."""
    type: str
    kind: Kind
    style: Style
    text: str
    folds: tuple[Fold, ...] = ()
    evidence: tuple[str, ...] = ()
    """Events that this one names as its reasons."""
    proves: tuple[str, ...] = ()
    """Anchors of the report's claims that cite this event."""
    secrets: int = 0
    """Secrets that were replaced in it."""


@dataclass(frozen=True, slots=True)
class Item:
    """What belongs together: a call with approval and result, a turn of the model, the checks of a step, or one event."""

    shape: Literal["call", "turn", "checks", "event"]
    rows: tuple[Row, ...]

    @property
    def failed(self) -> bool:
        return any(row.style == "bad" for row in self.rows)


@dataclass(frozen=True, slots=True)
class Section:
    """One visit of a step, or what happened outside of steps."""

    anchor: str
    step: str
    """'' outside of steps."""
    title: str
    state: Literal["", "left", "open"]
    """`left`: its checks held; `open`: the run went elsewhere or ended."""
    took_s: float
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the report, and the events that prove it."""

    anchor: str
    part: str
    text: str
    evidence: tuple[str, ...]
    missing: tuple[str, ...] = ()
    """Cited events that the journal does not have."""


@dataclass(frozen=True, slots=True)
class View:
    """A whole run."""

    run: str
    headline: str
    status: str
    simulated: str
    """Name of the lab, '' for real hosts."""
    facts: tuple[tuple[str, str], ...]
    claims: tuple[Claim, ...]
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()
    """What a reader must know first: damage, a torn line, a report that cannot be read."""
    secrets: dict[str, int] = field(default_factory=dict)
    """Rule → how many secrets it replaced."""
    left_out: int = 0
    """Characters of long texts that the view does not hold."""

    @property
    def rows(self) -> list[Row]:
        return [row for section in self.sections for item in section.items for row in item.rows]

    @property
    def approvals(self) -> list[tuple[Row, Row]]:
        """Calls that somebody was asked about, or that were refused: what was asked for, and what was said."""
        calls = [item.rows for section in self.sections for item in section.items if item.shape == "call"]
        return [
            (rows[0], row)
            for rows in calls
            for row in rows
            if row.type == "approval.decided" and row.style == "ask" and rows[0].type == "call.intent"
        ]

    @property
    def problems(self) -> list[Row]:
        return [row for row in self.rows if row.style == "bad"]
