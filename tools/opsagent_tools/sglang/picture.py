"""The frontier as a picture (SVG): tokens against requests, one dot per set of flags, the wish as a box."""

from __future__ import annotations

import math
from html import escape

from opsagent_tools.sglang.plan import Limits, Plan
from opsagent_tools.sglang.words import change_text, cost_text, tokens

WIDTH, HEIGHT = 860, 460
LEFT, TOP, RIGHT, BOTTOM = 80, 30, 330, 60


def frontier_svg(plan: Plan) -> str:
    """A self-contained SVG. Axes are logarithmic: requests to the right, tokens upwards."""
    points = [("as asked", plan.limits, "#b03030")] if plan.limits else []
    points += [(f"{at + 1}", option.limits, "#2060a0") for at, option in enumerate(plan.advice)]
    if not points:
        return _frame([_text(LEFT, TOP + 20, f"no launch to draw: {plan.cause or plan.failure}")])
    requests = [limits.max_running_requests for _name, limits, _colour in points if limits]
    sizes = [limits.max_total_num_tokens for _name, limits, _colour in points if limits]
    wish = plan.wish
    if wish is not None:
        requests += [wish.concurrency] if wish.concurrency else []
        sizes += [wish.context] if wish.context else []
    across, up = _scale(requests, LEFT, WIDTH - RIGHT), _scale(sizes, HEIGHT - BOTTOM, TOP)
    body = _axes(across, up, requests, sizes)
    if wish is not None and (wish.concurrency or wish.context):
        x = across(wish.concurrency or min(requests))
        y = up(wish.context or min(sizes))
        body.append(
            f'<rect x="{x:.0f}" y="{TOP}" width="{WIDTH - RIGHT - x:.0f}" height="{max(0.0, y - TOP):.0f}" fill="#e6f2e6"/>'
            + _text(x + 4, TOP + 14, "meets the wish", "#407040")
        )
    for name, limits, colour in points:
        body += _dot(name, limits, colour, across, up) if limits else []
    body += _legend(plan)
    return _frame(body)


def _scale(values: list[int], low: float, high: float):  # type: ignore[no-untyped-def]
    least, most = math.log(max(1, min(values))), math.log(max(2, max(values)))
    span = max(most - least, 0.3)

    def place(value: float) -> float:
        return low + (math.log(max(1.0, value)) - least + 0.05 * span) / (1.1 * span) * (high - low)

    return place


def _axes(across, up, requests: list[int], sizes: list[int]) -> list[str]:  # type: ignore[no-untyped-def]
    lines = [
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#444"/>',
        _text(LEFT + 120, HEIGHT - 12, "running requests"),
        _text(8, TOP - 10, "tokens in the KV pool"),
    ]
    for value in sorted(set(requests)):
        lines.append(_text(across(value) - 4, HEIGHT - BOTTOM + 18, str(value)))
    for value in sorted({min(sizes), max(sizes)}):
        lines.append(_text(8, up(value) + 4, tokens(value)))
    return lines


def _dot(name: str, limits: Limits, colour: str, across, up) -> list[str]:  # type: ignore[no-untyped-def]
    x, y = across(limits.max_running_requests), up(limits.max_total_num_tokens)
    title = f"{limits.max_running_requests} requests, {limits.max_total_num_tokens} tokens"
    return [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="6" fill="{colour}"><title>{title}</title></circle>',
        _text(x + 8, y - 6, name, colour),
    ]


def _legend(plan: Plan) -> list[str]:
    lines = []
    for at, option in enumerate(plan.advice):
        y = TOP + 14 + 34 * at
        lines.append(_text(WIDTH - RIGHT + 14, y, f"{at + 1}  {change_text(option.change)}"[:52]))
        lines.append(_text(WIDTH - RIGHT + 30, y + 14, cost_text(option)[:54], "#777"))
    return lines


def _text(x: float, y: float, words: str, colour: str = "#222") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}">{escape(words)}</text>'


def _frame(body: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    style = ' font-family="sans-serif" font-size="11">'
    return head + style + '<rect width="100%" height="100%" fill="#fff"/>' + "".join(body) + "</svg>\n"
