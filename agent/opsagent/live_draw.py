"""A scene as lines of a terminal: those that stay, and the few that change. Widths are in cells; no line is ever wider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.style import Style
from rich.text import Text

from opsagent.live_scene import Line, Scene
from opsagent.live_work import FOLLOWS, Work
from opsagent.transcript import STYLES

NAME = 14
"""Cells of a step's name, when there is room."""
NARROW = 60
"""Below this width names are short, and what can be left out is."""
DEEP = 5
ROWS = 4
"""Rows of one detail. Everything whole is in the journal (`opsagent show`)."""
STALL_S = 20.0
"""Without a byte for so long, it is said."""


@dataclass(frozen=True, slots=True)
class Used:
    """One budget: how much was used of how much (0: no limit). `time` in seconds."""

    name: str
    used: float
    limit: float = 0
    time: bool = False


@dataclass(frozen=True, slots=True)
class Foot:
    """What stands at the bottom: the run, its budgets, and how it goes on after a stop."""

    run: str
    used: Sequence[Used] = ()
    resume: str = ""
    stopping: bool = False


def clock(seconds: float) -> str:
    """`0:38`, `12:41`, `1:02:03`."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _span(seconds: float) -> str:
    """A limit: `6 h`, `90 min`."""
    return f"{seconds / 3600:.0f} h" if seconds % 3600 == 0 else f"{seconds / 60:.0f} min"


def amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def _fit(text: Text, width: int) -> Text:
    text.no_wrap = True
    text.truncate(max(1, width), overflow="ellipsis")
    return text


def _name(name: str, width: int) -> str:
    room = _room(width)
    return name if len(name) <= room else name[: room - 1] + "…"


def stays(line: Line, width: int) -> list[Text]:
    """A line that is printed for good, over as many rows as it needs; a step's own line is one row."""
    style = Style.parse(STYLES[line.style])
    if not line.mark:
        indent = DEEP if width >= NARROW else 2
        return _wrapped(Text(line.text, style=style), width, indent, ROWS)
    room = _room(width)
    head = Text(f" {line.mark} ", style=style)
    head.append(f"{_name(line.name, width):<{room}} ", style=style + Style(bold=True))
    took = f"  {clock(line.took_s)}" if line.took_s is not None and width >= NARROW else ""
    text = Text(line.text, style="" if line.style in ("good", "step") else style)
    first, *more = _wrapped(text, width - len(took), room + 4, 2)
    row = head + first[room + 4 :]
    row.append(" " * max(0, width - len(took) - row.cell_len) + took, style="dim")
    row.rstrip()
    return [row, *more]


def heading(text: str, width: int) -> list[Text]:
    """The first line of a run; whole, on as many rows as it takes: it says whether this is real."""
    return _wrapped(Text(text, style="bold"), width, 1, ROWS)


def _room(width: int) -> int:
    return NAME if width >= NARROW else 9


def _wrapped(text: Text, width: int, indent: int, most: int) -> list[Text]:
    """The text indented, over at most so many rows; the last one says by an ellipsis that there was more."""
    cells = max(2, width - indent)  # a wide character has two
    rows = list(text.wrap(Console(width=width), cells)) or [Text("")]
    if len(rows) > most:
        rows[most - 1].rstrip()
        rows[most - 1] = _fit(rows[most - 1] + Text(" ") + rows[most], cells)
    return [Text(" " * indent) + row for row in rows[:most]]


def changing(scene: Scene, foot: Foot, now: float, width: int, height: int) -> list[Text]:
    """The live region, at most `height` rows; what matters most is kept when there is less room."""
    rows: list[tuple[int, Text]] = []  # (how soon it may go, row): in the order of the screen
    step = scene.step
    running = step is not None and step.state == "running"
    if step is not None and running:
        rows += [(4, row) for note in step.lines()[-3:] for row in stays(note, width)[:1]]
    rows.append((0, _at_work(scene, now, width)))
    if scene.work is not None:
        detail = _detail(scene.work, now, width)
        rows += [(1, detail)] if detail is not None else []
    ahead = [each.id for each in scene.steps if each.state == "ahead"] + ["report"]
    ahead = ahead if running else ahead[1:]
    rows.append((3, Text("   " + " · ".join(ahead), style="dim")))
    if scene.log_line:
        rows.append((5, Text("   " + scene.log_line, style="dim")))
    rows.append((2, _budgets(foot, width)))
    rows.append((1, _hint(foot, width)))
    while len(rows) > max(1, height):
        rows.remove(max(rows, key=lambda row: row[0]))
    return [_fit(row, width) for _order, row in rows]


def _at_work(scene: Scene, now: float, width: int) -> Text:
    step = scene.step
    running = step is not None and step.state == "running"
    room = _room(width)
    text = Text(" ▶ ", style="bold cyan")
    ahead = next((each for each in scene.steps if each.state == "ahead"), None)
    name = step.id if step is not None and running else ahead.id if ahead is not None else "report"
    text.append(f"{_name(name, width):<{room}} ", style="bold")
    if scene.work is not None:
        work = scene.work
        text.append(f"{work.tool} on {work.host}" if work.host else work.tool)
        text.append(f" · {_elapsed(now - work.began, work.expected_s)}")
        if work.brief and width >= NARROW:
            text.append(f" · {work.brief}", style="dim")
    elif scene.thinking is not None and scene.thinking[0] != "autopilot":
        text.append(f"{scene.thinking[0]} decides · {clock(now - scene.thinking[1])}")
    elif step is not None and running:
        text.append(step.title)
    elif ahead is None:
        text.append("a last look at the hosts")
    return text


def _elapsed(seconds: float, expected: float | None) -> str:
    return clock(seconds) + (f" of about {clock(expected)}" if expected else "")


def _detail(work: Work, now: float, width: int) -> Text | None:
    """Under the call: a bar with its rate and time left, or the tool's own words."""
    room = _room(width)
    text = Text(" " * (room + 4))
    if work.done is None or not work.total:
        if not work.text:
            return None
        text.append(_phase(work) if work.tool in FOLLOWS else work.text)
        if work.label_expected_s:
            text.append(f" · {_elapsed(now - work.label_began, work.label_expected_s)}")
        return text
    share = min(1.0, max(0.0, work.done / work.total))
    cells = max(6, min(24, width - room - 50))
    full = int(share * cells)
    text.append(_phase(work) + " ")
    text.append("█" * full, style="cyan")
    text.append("░" * (cells - full), style="dim")
    text.append(f" {amount(work.done)}/{amount(work.total)} {work.unit}")
    for part in _pace(work, now):
        text.append(" · ")
        text.append_text(part)
    return text


def _phase(work: Work) -> str:
    """A short name of what the bar measures."""
    words = work.text.partition(": ")[0]
    if work.tool in FOLLOWS:
        return words
    if work.tool == "download_model" and " over " in words:
        return "over " + words.partition(" over ")[2]
    return words if len(words) <= 24 else work.label[:24]


def _pace(work: Work, now: float) -> Iterable[Text]:
    """Rate and time left; or that nothing came for a while."""
    if work.unit == "GiB" and now - work.grew >= STALL_S:
        yield Text(f"nothing came for {clock(now - work.grew)}", style="yellow")
        return
    rate, left = work.rate(now), work.left_s(now)
    if rate is not None and work.unit == "GiB":
        yield Text(f"{rate * 1024:,.0f} MiB/s" if rate < 1 else f"{rate:,.1f} GiB/s")
    took = now - work.label_began
    if work.unit == "GiB":
        if left is not None:
            yield Text(f"{clock(left)} left")
        return
    total = work.label_expected_s
    if left is not None and work.done and work.total and work.done / work.total >= 0.1:
        total = took + left
    yield Text(_elapsed(took, total))


def _budgets(foot: Foot, width: int) -> Text:
    text = Text(f"   run {foot.run}", style="dim")
    for one in foot.used:
        limit = (_span(one.limit) if one.time else f"{one.limit:,.0f}") if one.limit else ""
        used = clock(one.used) if one.time else f"{one.used:,.0f}"
        scarce = bool(one.limit) and one.used > 0.8 * one.limit
        text.append(" · ")
        label = f"{one.name} " if one.name else ""
        between = " of " if one.time else "/"
        text.append(f"{label}{used}" + (f"{between}{limit}" if limit else ""), style="yellow" if scarce else "")
    return text


def _hint(foot: Foot, width: int) -> Text:
    if foot.stopping:
        more = "Ctrl-C once more: at once" if width < NARROW else "Ctrl-C once more: at once, without waiting for it"
        return Text(f" Stopping at the next safe point; {more}", style="yellow")
    words = "Ctrl-C stops;" if width < NARROW else "Ctrl-C ends cleanly; go on with:"
    return Text(f" {words} {foot.resume}", style="dim")
