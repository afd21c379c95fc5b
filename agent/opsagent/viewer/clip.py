"""Long texts in short: a page of a long run stays small, and says everywhere what it does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opsagent.viewer.model import Fold

TAIL = 1 / 3
"""Share of a clipped text that comes from its end: the last lines of a log say most."""


def clip(fold: Fold, most: int) -> Fold:
    """The fold with at most this many characters, from its beginning and its end; what is missing is counted."""
    if len(fold.text) + len(fold.tail) <= most:
        return fold
    tail = int(most * TAIL)
    end = (fold.tail or fold.text)[-tail:] if tail else ""
    head = fold.text[: most - tail]
    return replace(fold, text=head, tail=end, left_out=fold.size - len(head) - len(end))


def fair_share(sizes: Sequence[int], budget: int) -> int:
    """The length to which each text is clipped so that all together take `budget`: short ones stay whole.

    The largest size when everything fits.
    """
    rest, count = budget, len(sizes)
    for size in sorted(sizes):
        if size * count > rest:
            return max(0, rest // count)
        rest -= size
        count -= 1
    return max(sizes, default=0)
