"""The frontier as a picture (SVG): tokens against requests at once, one mark for each set of flags, the wish as an area."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from opsagent_tools.sglang.drawing import frame, line, rect, shape, short, standalone, text
from opsagent_tools.sglang.plan import Plan
from opsagent_tools.sglang.words import change_text, cost_text, tokens

LEFT, RIGHT = 13.0, 97.0
"""Edges of the plot, per cent of the width."""
TOP, BOTTOM, HEIGHT = 34, 330, 396
NOMINAL, APART = 8.0, 19.0
"""Pixels of one per cent on a middling screen, and how far apart the middles of two marks must be."""
MARKS = {
    "asked": ("M-7 -7H7V7H-7Z", "bg", "c-reserve"),
    "chosen": ("M0 -11L11 0L0 11L-11 0Z", "c-kv", "bg"),
    "option": ("M0 -9A9 9 0 1 1 0 9A9 9 0 1 1 0 -9Z", "c-weights", "bg"),
}
"""Path, fill and edge: an empty square, a diamond, a disc with its number."""


@dataclass(frozen=True)
class Point:
    """One set of flags: the limits it gives, and what the picture calls it."""

    mark: str
    kind: Literal["asked", "chosen", "option"]
    requests: int
    tokens: int

    @property
    def said(self) -> str:
        return f"{self.mark}: {self.requests:,} request{'' if self.requests == 1 else 's'}, {self.tokens:,} tokens"


Place = Callable[[float], float]


def frontier_picture(
    points: Sequence[Point],
    *,
    wish_requests: int | None = None,
    wish_tokens: int | None = None,
    context: int | None = None,
    ident: str = "frontier",
) -> str:
    """The points on logarithmic axes: requests at once to the right, tokens upwards.

    `wish_requests` and `wish_tokens` shade what meets the wish. `context` (tokens) draws the line on which every request
    can be that long at the same time.
    """
    requests = [point.requests for point in points] + ([wish_requests] if wish_requests else [])
    sizes = [point.tokens for point in points] + ([wish_tokens] if wish_tokens else [])
    across, up = _scale(requests, LEFT, RIGHT), _scale(sizes, BOTTOM, TOP)
    body = _wish(wish_requests, wish_tokens, across, up) + _axes(across, up, requests, sizes)
    if context:
        body += _full_contexts(context, across, up)
    return frame(
        body + _marks(points, across, up),
        height=HEIGHT,
        title="Requests at once against tokens in all, by flags",
        description="; ".join(point.said for point in points),
        ident=ident,
    )


def frontier_svg(plan: Plan) -> str:
    """The frontier of a plan as a file of its own, with a legend."""
    points = (
        [Point("as asked", "asked", plan.limits.max_running_requests, plan.limits.max_total_num_tokens)]
        if plan.limits
        else []
    )
    points += [
        Point(str(at), "option", option.limits.max_running_requests, option.limits.max_total_num_tokens)
        for at, option in enumerate(plan.advice, 1)
    ]
    if not points:
        words = f"no launch to draw: {plan.cause or plan.failure}"
        return standalone(
            frame([text(2, 30, words)], height=60, title=words, description=words, ident="frontier"), width=860
        )
    wish = plan.wish
    drawn = frontier_picture(
        points, wish_requests=wish.concurrency if wish else None, wish_tokens=wish.context if wish else None
    )
    legend = []
    for at, option in enumerate(plan.advice, 1):
        y = HEIGHT + 6 + 40 * at - 20
        legend.append(text(2, y, f"{at}  {change_text(option.change)}"))
        legend.append(text(2, y + 17, f"    it costs: {cost_text(option)}", fill="soft"))
    taller = drawn.replace(f'height="{HEIGHT}"', f'height="{HEIGHT + 14 + 40 * len(plan.advice)}"', 1)
    return standalone(taller.removesuffix("</svg>") + "".join(legend) + "</svg>", width=860)


def _scale(values: Sequence[int], low: float, high: float) -> Place:
    """A logarithmic scale over the values, with a little room at both ends."""
    least, most = math.log(max(1, min(values))), math.log(max(1, *values))
    room = max(0.12 * (most - least), 0.25)

    def place(value: float) -> float:
        return low + (math.log(max(1.0, value)) - least + room) / (most - least + 2 * room) * (high - low)

    return place


def _ticks(values: Sequence[int], steps: Sequence[int], most: int) -> list[int]:
    """Round numbers between the smallest and the largest value, not more than `most`; the two themselves when none is."""
    least, largest = min(values), max(values)
    found = [step * 10**power for power in range(10) for step in steps if least <= step * 10**power <= largest]
    while len(found) > most:
        found = found[::2]
    return found or sorted({least, largest})


def _axes(across: Place, up: Place, requests: Sequence[int], sizes: Sequence[int]) -> list[str]:
    drawn = [
        line(LEFT, TOP, LEFT, BOTTOM, stroke="edge"),
        line(LEFT, BOTTOM, RIGHT, BOTTOM, stroke="edge"),
        text(RIGHT, BOTTOM + 40, "requests at once →", fill="soft", anchor="end"),
        text(0, 14, "↑ tokens in all", fill="soft"),
    ]
    doubled = [value for value in (2**power for power in range(14)) if min(requests) <= value <= max(requests)]
    for value in doubled or sorted(set(requests)):
        x = across(value)
        drawn += [line(x, BOTTOM, x, BOTTOM + 5, stroke="edge"), text(x, BOTTOM + 20, f"{value:,}", anchor="middle")]
    for value in _ticks(sizes, (1, 2, 5), 6):
        y = up(value)
        drawn += [line(LEFT, y, RIGHT, y), text(LEFT - 1, y + 4, _short(value), anchor="end", size=12)]
    return drawn


def _short(count: int) -> str:
    """200000 → 200k: it must fit beside the axis on a telephone."""
    if count >= 10_000_000:
        return f"{count / 1e6:.0f}M"
    return f"{count / 1000:g}k" if count % 1000 == 0 else tokens(count) if count < 10_000 else f"{count / 1000:.0f}k"


def _wish(requests: int | None, size: int | None, across: Place, up: Place) -> list[str]:
    if not requests and not size:
        return []
    x, y = (across(requests) if requests else LEFT), (up(size) if size else BOTTOM)
    return [
        rect(x, TOP, RIGHT - x, y - TOP, fill="good-bg"),
        text(RIGHT - 0.5, TOP - 6, "the wish is met in the shaded area", fill="good", anchor="end", size=12),
    ]


def _full_contexts(context: int, across: Place, up: Place) -> list[str]:
    """tokens = requests · context is straight here; it is cut where it leaves the plot."""
    slope = (up(context * 2) - up(context)) / (across(2) - across(1))
    x1, y1 = across(1), up(context)
    ends = []
    for x in (LEFT, RIGHT):
        y = y1 + slope * (x - x1)
        held = min(max(y, TOP), BOTTOM)
        ends.append((x1 + (held - y1) / slope, held))
    (x1, y1), (x2, y2) = ends
    if x2 - x1 < 5:
        return []
    words = f"dashed: all at {context:,} tokens at once"
    return [line(x1, y1, x2, y2, stroke="edge", dash="6 4"), text(0, BOTTOM + 60, words, fill="soft", size=12)]


def _marks(points: Sequence[Point], across: Place, up: Place) -> list[str]:
    drawn: list[str] = []
    taken: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda point: point.kind == "option"):
        x, y = across(point.requests), up(point.tokens)
        dx = 0.0
        while any(abs(x * NOMINAL + dx - there) < APART and abs(y - other) < APART for there, other in taken):
            dx += APART  # two that would lie on each other: the later one moves aside
        taken.append((x * NOMINAL + dx, y))
        path, fill, stroke = MARKS[point.kind]
        drawn.append(shape(x, y, path, fill=fill, stroke=stroke, title=point.said, dx=dx))
        if point.kind == "option":
            drawn.append(text(x, y + 5, short(point.mark, 3), fill="on-colour", anchor="middle", size=12, dx=dx))
        else:
            right = x > (LEFT + RIGHT) / 2
            drawn.append(
                text(x, y + 5, short(point.mark, 16), anchor="end" if right else "start", dx=-15 if right else 15)
            )
    return drawn
