"""Parts of pictures (SVG) that read well at any width, in the light and in the dark.

Places across are per cent and sizes of text are pixels, so that a picture narrows with the page and its words stay readable.
Colours are CSS variables of the page with a fallback; `standalone` makes a file of a picture, with the fallbacks for good.
"""

from __future__ import annotations

import re
from html import escape

COLOURS = {
    "text": "#1b2128", "soft": "#505a66", "bg": "#ffffff", "line": "#c9d1d9", "edge": "#6b7684", "good": "#17692f",
    "good-bg": "#e3f4e7", "warn": "#7a4a00", "on-colour": "#ffffff", "on-free": "#1b2128", "c-weights": "#2f6fb2",
    "c-draft": "#7d4aa8", "c-state": "#b4501e", "c-reserve": "#a83268", "c-kv": "#1e7d5a", "c-graphs": "#6f6a1f",
    "c-other": "#5d6670", "c-free": "#eef1f4",
}  # fmt: skip
"""The light palette: what a picture has where no page sets its variables."""
_VARIABLE = re.compile(r"var\(--[\w-]+, (#[0-9a-f]{6})\)")


def colour(name: str) -> str:
    """`var(--c-kv, #1e7d5a)`."""
    return f"var(--{name}, {COLOURS[name]})"


def style(**parts: str) -> str:
    """A style attribute: `fill="kv"` gives the colour of that name, other values stay."""
    words = "; ".join(f"{key.replace('_', '-')}: {colour(v) if v in COLOURS else v}" for key, v in parts.items())
    return f'style="{words}"'


def short(words: str, most: int = 40) -> str:
    """A label that fits: the whole of it stands in the table beside the picture."""
    return words if len(words) <= most else words[: most - 1] + "…"


def text(
    x: float,
    y: float,
    words: str,
    *,
    fill: str = "text",
    anchor: str = "start",
    size: int = 13,
    dx: float = 0,
    halo: str = "",
) -> str:
    """Words at x per cent and y pixels, moved dx pixels to the right; `halo` is a colour behind the letters."""
    behind = {"stroke": halo, "stroke_width": "5", "paint_order": "stroke"} if halo else {}
    return (
        f'<text x="{x:.2f}%" y="{y:.0f}" dx="{dx:.0f}" text-anchor="{anchor}" {style(fill=fill, **behind)} '
        f'font-size="{size}">{escape(words)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, *, stroke: str = "line", dash: str = "none") -> str:
    """A line from (x1 %, y1 px) to (x2 %, y2 px)."""
    return (
        f'<line x1="{x1:.2f}%" y1="{y1:.1f}" x2="{x2:.2f}%" y2="{y2:.1f}" '
        f"{style(stroke=stroke, stroke_dasharray=dash)}/>"
    )


def rect(x: float, y: float, width: float, height: float, *, fill: str, extra: str = "") -> str:
    """A box: x and width in per cent, y and height in pixels. `extra` goes inside (a title)."""
    return (
        f'<rect x="{x:.3f}%" y="{y:.0f}" width="{max(0.0, width):.3f}%" height="{height:.0f}" {style(fill=fill)}>'
        f"{extra}</rect>"
    )


def shape(x: float, y: float, path: str, *, fill: str, stroke: str, title: str, dx: float = 0) -> str:
    """A path around the origin, moved to (x % and dx px, y px), with a title that a pointer shows."""
    return (
        f'<svg x="{x:.2f}%" y="{y:.0f}" width="1" height="1" overflow="visible" aria-hidden="true"><path d="{path}" '
        f'transform="translate({dx:.0f} 0)" '
        f"{style(fill=fill, stroke=stroke, stroke_width='2')}><title>{escape(title)}</title></path></svg>"
    )


def frame(body: list[str], *, height: int, title: str, description: str, ident: str) -> str:
    """The picture, with a title and a description that a screen reader says. `ident` is unique on its page."""
    return (
        f'<svg role="img" aria-labelledby="{ident}-t {ident}-d" width="100%" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg"><title id="{ident}-t">{escape(title)}</title>'
        f'<desc id="{ident}-d">{escape(description)}</desc>{"".join(body)}</svg>'
    )


def standalone(picture: str, *, width: int) -> str:
    """The picture as a file of its own: a fixed width, a white ground, colours that no page changes."""
    fixed = _VARIABLE.sub(r"\1", picture).replace('width="100%"', f'width="{width}"', 1)
    start = fixed.index("</desc>") + len("</desc>")
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return fixed[:start].replace("<svg ", '<svg font-family="sans-serif" ', 1) + ground + fixed[start:] + "\n"
