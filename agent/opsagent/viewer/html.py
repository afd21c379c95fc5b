"""A view as one HTML file that needs no network, and no script to be read; a small one searches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from opsagent import __version__
from opsagent.html import page
from opsagent.html.page import fragment, source
from opsagent.transcript import KINDS
from opsagent.viewer.model import Claim, Fold, View

TONES = {"verified": "good", "running": "plain", "stopped": "warn", "waiting-approval": "warn", "interrupted": "warn"}
LISTED = 200
"""Steps and problems that are listed at the top; the rest is counted."""

CHUNK = 25
"""Items that a browser lays out together, when they come near the screen."""


def html(view: View, head: str = "", *, report: str = "") -> str:
    """The page. `head` is the digest of the journal's last line: who keeps it can prove what they saw. `report` is the
    address of the report beside it, when there is one.
    """
    body = fragment(
        "viewer.html.j2",
        view=view,
        head=head,
        report=report,
        version=__version__,
        tone=TONES.get(view.status, "bad"),
        kinds=KINDS,
        claims=_grouped(view.claims),
        problems=view.problems,
        approvals=view.approvals,
        known={row.event for row in view.rows},
        most=LISTED,
        titles=_titles,
        chunks=CHUNK,
        proofs=_by_part({claim.anchor: claim.part for claim in view.claims}),
        took=_took,
    )
    title = f"{view.run}: {view.headline} ({view.status})"
    return page(
        title, body, script=source("viewer.js"), style=source("viewer.css"), simulated=view.simulated, kind="transcript"
    )


def _grouped(claims: Sequence[Claim]) -> list[tuple[str, list[Claim]]]:
    return [(part, list(group)) for part, group in itertools.groupby(claims, key=lambda claim: claim.part)]


def _by_part(parts: Mapping[str, str]) -> Callable[[Sequence[str]], list[tuple[str, list[str]]]]:
    """The function that groups anchors of claims by the part of the report in which they stand."""
    return lambda anchors: [(part, list(group)) for part, group in itertools.groupby(anchors, key=parts.__getitem__)]


def _titles(folds: Sequence[Fold]) -> str:
    """`result 9,878 characters · output x.log 35,719 characters`: what a fold holds."""
    return " · ".join(f"{fold.title} {fold.size:,} characters" if fold.size > 400 else fold.title for fold in folds)


def _took(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
