"""A run on a terminal or in a pipe: one line for each event that matters, or everything that events hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from opsagent.fence import neutral
from opsagent.protocols import Event
from opsagent.transcript import STYLES, Line, Transcript, one_line
from opsagent.viewer.clip import clip
from opsagent.viewer.folds import Read, folds_of
from opsagent.viewer.model import Claim, Fold
from opsagent.viewer.select import excerpt

MOST = 4_000
"""Characters of one long text among many; of an event that was asked for by its name there is no limit."""


def timeline(
    console: Console, events: Iterable[Event], picked: frozenset[str] | None, transcript: Transcript,
    pattern: re.Pattern[str] | None = None,
) -> int:  # fmt: skip
    """Print the lines of the picked events (None: all that matter). Returns how many."""
    count = 0
    for event in events:
        line = transcript.line(event)
        if line is None or (picked is not None and event.id not in picked):
            continue
        count += 1
        put(console, line, pattern)
        if pattern is not None and not pattern.search(line.text):
            found = Text(one_line(excerpt(event, pattern)), style="dim")
            found.highlight_regex(pattern, "reverse")
            put_text(console, " " * (9 + 2 * line.depth), found)
    return count


def put(console: Console, line: Line, pattern: re.Pattern[str] | None = None) -> None:
    text = Text(line.text, style=STYLES[line.style])
    if pattern is not None:
        text.highlight_regex(pattern, "reverse")
    put_text(console, f"{line.event:>6} {'  ' * line.depth}", text)


def put_text(console: Console, margin: str, text: Text) -> None:
    """On a terminal what is too long goes on under itself; in a pipe a line stays a line."""
    parts: Sequence[Text] = [text]
    if console.is_terminal and console.width > len(margin) + 20:
        parts = list(text.wrap(console, console.width - len(margin)))
    for number, part in enumerate(parts):
        console.print(Text.assemble((margin if number == 0 else " " * len(margin), "dim"), part))


def everything(console: Console, events: Iterable[Event], picked: frozenset[str] | None, run: str, read: Read) -> int:
    """Print each picked event with what it holds, long texts in short. Returns how many."""
    transcript, count = Transcript(everything=True), 0
    for event in events:
        line = transcript.line(event)
        if line is None or (picked is not None and event.id not in picked):
            continue
        count += 1
        put(console, line)
        for fold in folds_of(event, run, read):
            put_fold(console, clip(fold, MOST), " " * (9 + 2 * line.depth))
    return count


def one(console: Console, event: Event, line: Line | None, run: str, read: Read) -> None:
    """Print one event and all that it holds; kept outputs by the command that prints them."""
    console.print(Text(f"{event.id} · {event.ts} · {event.type}", style="bold"))
    if line is not None:
        put_text(console, "", Text(line.text, style=STYLES[line.style]))
    cited = event.data.get("evidence")
    if isinstance(cited, list) and cited:
        console.print(Text(one_line(f"because of {' '.join(map(str, cited))}"), style="dim"))
    for fold in folds_of(event, run, read, most=1 << 62):
        if fold.shape == "output":
            console.print(Text(one_line(f"{fold.title}, {fold.size:,} characters: {fold.whole}"), style="dim"))
        else:
            put_fold(console, fold, "")


def related(console: Console, event: Event, events: Iterable[Event], claims: Iterable[Claim]) -> None:
    """Print where an event belongs: the other events of its call, and what the report proves with it."""
    ident = _call(event)
    others = [other.id for other in events if ident and _call(other) == ident]
    if len(others) > 1:
        console.print(Text(one_line(f"{ident}: {' '.join(others)}"), style="dim"))
    for claim in claims:
        if event.id in claim.evidence:
            put_text(console, "  ", Text(one_line(f"proves: {claim.part}: {claim.text}"), style="dim"))


def _call(event: Event) -> str:
    """The id of the call that an event belongs to, or ''."""
    call = event.data.get("call")
    found = call.get("id") if isinstance(call, dict) else call
    return found if isinstance(found, str) else ""


def put_fold(console: Console, fold: Fold, margin: str) -> None:
    """A long text under its title; what was left out is counted where it was."""
    console.print(Text(f"{margin}{one_line(fold.title)}:", style="dim"))
    for text in (fold.text, fold.tail):
        if text:  # not drawn but written: it has no style, and may have a hundred thousand lines
            console.file.write("".join(f"{margin}  {row}\n" for row in neutral(text).split("\n")))
        if fold.left_out and text is fold.text:
            console.print(
                Text(one_line(f"{margin}  … {fold.left_out:,} characters left out: {fold.whole}"), style="yellow")
            )
