"""The memory of GPUs as stacked bars (SVG): one bar for each way of dividing it, the free rest last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsagent_tools.sglang.drawing import frame, rect, short, style, text

TERMS: dict[str, tuple[str, str]] = {
    "weights": ("weights", "c-weights"),
    "recurrent_state": ("recurrent state", "c-state"),
    "verification": ("state for verification", "c-reserve"),
    "kv_cache": ("KV cache", "c-kv"),
    "pools": ("pools: state and KV", "c-kv"),
    "draft": ("draft model and its KV", "c-draft"),
    "graphs": ("graphs", "c-graphs"),
    "other": ("other, after the pools", "c-other"),
    "set_aside": ("set aside, used by nothing", "c-reserve"),
    "free": ("free", "c-free"),
}
"""What a bar is made of, in the order of the bar: slug → (words, colour of `drawing.COLOURS`)."""
ROW, THICK, TOP = 78, 34, 24


@dataclass(frozen=True)
class Bar:
    """One GPU's memory: `parts` are (slug of TERMS, GiB) and add up to about `whole` GiB."""

    label: str
    whole: float
    parts: Sequence[tuple[str, float]]


def keys(bars: Sequence[Bar]) -> dict[str, str]:
    """The number of each term that the bars have, as picture and legend show it."""
    used = [slug for slug in TERMS if any(slug == part for bar in bars for part, _gib in bar.parts)]
    return {slug: str(number) for number, slug in enumerate(used, 1)}


def bars_picture(bars: Sequence[Bar], *, ident: str = "budget") -> str:
    """The bars above each other, on one scale; every part carries its number (`keys`), so that colour alone says nothing."""
    numbers = keys(bars)
    longest = max((max(bar.whole, sum(gib for _slug, gib in bar.parts)) for bar in bars), default=1.0)
    body = [_hatch(ident)]
    for row, bar in enumerate(bars):
        body += _row(bar, row * ROW, longest, numbers, ident)
    return frame(
        body,
        height=max(1, len(bars)) * ROW,
        title="Memory of one GPU in GiB",
        description=". ".join(_said(bar) for bar in bars),
        ident=ident,
    )


def _said(bar: Bar) -> str:
    parts = ", ".join(f"{TERMS[slug][0]} {gib:.2f}" for slug, gib in bar.parts)
    return f"{bar.label}, {bar.whole:.2f} GiB before loading: {parts}"


def _row(bar: Bar, top: float, longest: float, numbers: dict[str, str], ident: str) -> list[str]:
    drawn = [
        text(0, top + 16, short(bar.label)),
        text(100, top + 16, f"{bar.whole:.2f} GiB", fill="soft", anchor="end"),
    ]
    at, narrow = 0.0, 0
    for slug, gib in bar.parts:
        width = gib / longest * 100
        words, fill = TERMS[slug]
        drawn.append(rect(at, top + TOP, width, THICK, fill=fill, extra=f"<title>{words}: {gib:.2f} GiB</title>"))
        if slug == "set_aside":
            drawn.append(
                f'<rect x="{at:.3f}%" y="{top + TOP:.0f}" width="{width:.3f}%" height="{THICK}" fill="url(#{ident}-h)"/>'
            )
        drawn.append(_edge(at, top, width))
        wide = width >= 3.6
        ink = "on-free" if slug == "free" else "on-colour"
        below = top + TOP + THICK + 12 + 10 * (narrow % 2)
        drawn.append(
            text(at + width / 2, top + TOP + THICK / 2 + 5, numbers[slug], fill=ink, anchor="middle", halo=fill)
            if wide
            else text(at + width / 2, below, numbers[slug], fill="soft", anchor="middle", size=11)
        )
        narrow = 0 if wide else narrow + 1
        at += width
    return drawn


def _edge(at: float, top: float, width: float) -> str:
    """A thin line around a part, in the colour of the ground: neighbours stay apart where their colours look alike."""
    return (
        f'<rect x="{at:.3f}%" y="{top + TOP:.0f}" width="{width:.3f}%" height="{THICK}" '
        f"{style(fill='none', stroke='bg', stroke_width='1.5')}/>"
        f'<rect x="{at:.3f}%" y="{top + TOP:.0f}" width="{width:.3f}%" height="{THICK}" '
        f"{style(fill='none', stroke='edge', stroke_width='0.5')}/>"
    )


def _hatch(ident: str) -> str:
    return (
        f'<defs><pattern id="{ident}-h" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="3" height="8" {style(fill="bg", fill_opacity="0.45")}/></pattern></defs>'
    )
