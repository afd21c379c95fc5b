"""The table of predicted against logged in docs/planner.md, and the coverage of the intervals.

Run as `python -m bench.planner_table [--write]`.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from planner.records import UNEXPLAINED, Record, every, predicted

from opsagent_tools.sglang.plan import Plan

DOCUMENT = Path(__file__).parent.parent / "docs" / "planner.md"
BEGIN, END = "<!-- table: python -m bench.planner_table --write -->", "<!-- end of table -->"


def table() -> str:
    """One row per record; differences are predicted minus logged."""
    head = "| record | tokens logged | predicted | % | requests | slots | weights | draft | pool end | verdict |"
    rows = [head, "|---|---:|---:|---:|---|---|---:|---:|---:|---|"]
    return "\n".join([*rows, *(row(record, predicted(record)) for record in every())])


def row(record: Record, plan: Plan) -> str:
    logged, limits, gib = record.logged, plan.limits, plan.per_gpu_gib
    tokens, ours = logged["max_total_num_tokens"], limits.max_total_num_tokens if limits else None
    error = f"{100 * (ours / tokens - 1):+.2f}" if ours and tokens else ""
    running = pair(limits.max_running_requests if limits else None, logged["max_running_requests"])
    verdict = plan.verdict if plan.verdict == "fits" else f"{plan.failure}"
    real = (
        ""
        if record.outcome == "memory-lines-only"
        else "ready"
        if record.outcome == "ready"
        else record.failure or "fails"
    )
    mark = "" if record.scored else " (i)"
    mark += " (x)" if record.id in UNEXPLAINED else ""
    cells = [
        f"`{record.id}`{mark}", f"{tokens:,}" if tokens else "", f"{ours:,}" if ours else "", error, running,
        pair(plan.slots, logged["mamba_slots"]), difference(gib.weights if gib else None, logged["weights_gib"]),
        difference(gib.draft_weights if gib else None, logged["draft_weights_gib"]),
        difference(gib.pool_end_avail if gib else None, logged["pool_end_avail_gib"]),
        f"{verdict} ({real})" if real else verdict,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def pair(ours: int | None, theirs: int | None) -> str:
    if theirs is None:
        return ""
    return f"{theirs:,}" if ours == theirs else f"{theirs:,} / {ours if ours is not None else '–'}"


def difference(ours: float | None, theirs: float | None) -> str:
    return "" if ours is None or theirs is None else f"{ours - theirs:+.2f}"


def coverage() -> str:
    """How often the logged tokens lie in the interval, and how wide it is; with free memory, and from the total alone."""
    lines = []
    for label, total_only in (("free memory given", False), ("total memory only", True)):
        inside, widths, edges = [], [], []
        for record in every():
            plan = predicted(record, total_only=total_only)
            span, logged = plan.intervals.max_total_num_tokens, record.logged["max_total_num_tokens"]
            if not record.scored or record.outcome == "fails" or not logged or span is None:
                continue
            if (total_only and record.emulated) or (not total_only and record.free_gib is None):
                continue
            inside.append(span[0] <= logged <= span[1])
            widths.append((span[1] - span[0]) / 2 / logged)
            if plan.intervals.edge:
                edges.append(record.id)
        lines.append(
            f"* {label}: {sum(inside)} of {len(inside)} inside, median half-width {100 * statistics.median(widths):.2f} %"
            + (f"; on an edge: {', '.join(edges)}" if edges else "")
        )
    return "\n".join(lines)


def document(text: str) -> str:
    """The document with a fresh table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{coverage()}\n\n{table()}\n\n{END}{after}"


def main() -> None:
    if "--write" in sys.argv:
        DOCUMENT.write_text(document(DOCUMENT.read_text()))
    else:
        print(coverage(), table(), sep="\n\n")


if __name__ == "__main__":
    main()
