"""The report's pictures as markup, and the tables that say the same in words."""

from __future__ import annotations

from markupsafe import Markup

from opsagent.report import markdown as words
from opsagent.report.html_cells import Rows, changes, proof, strong
from opsagent.report.model import GpuBudget, StatusReport
from opsagent_tools.sglang.bars import TERMS, Bar, bars_picture, keys
from opsagent_tools.sglang.picture import Point, frontier_picture

NOTABLE_GIB = 0.5


def bars(report: StatusReport) -> Markup:
    """The memory of each GPU; what drew it escapes its own words."""
    drawn = [_bar(budget) for budget in report.budget]
    return Markup(bars_picture(drawn)) if drawn else Markup()


def _bar(budget: GpuBudget) -> Bar:
    said = {"asked": "predicted, ", "planned": "predicted, ", "logged": ""}[budget.source]
    known = [(part.term if part.term in TERMS else "other", part.gib) for part in budget.segments]
    return Bar(words.neutral(said + budget.label), budget.whole_gib, known)


def bar_head(report: StatusReport) -> list[str]:
    return ["GiB", *(words.neutral(budget.label) for budget in report.budget)]


def bar_rows(report: StatusReport) -> Rows:
    """One row for each term, with the number that it has in the picture."""
    drawn = [_bar(budget) for budget in report.budget]
    rows: Rows = []
    for slug, number in keys(drawn).items():
        label, colour = TERMS[slug]
        key = Markup('<span class="key {} {}">{}</span> {}').format(colour, slug, number, label)
        rows.append((key, *(_gib(bar, slug) for bar in drawn)))
    return rows


def _gib(bar: Bar, slug: str) -> str:
    found = [gib for part, gib in bar.parts if part == slug]
    return f"{sum(found):.2f}" if found else "–"


def bar_notes(report: StatusReport) -> list[str]:
    """What the bars show at a glance, as sentences."""
    sources = {bar.source for bar in report.budget}
    notes = ["The log does not part the pools."] if "logged" in sources and len(sources) > 1 else []
    asked = [
        part.gib for bar in report.budget if bar.source == "asked" for part in bar.segments if part.term == "set_aside"
    ]
    if sum(asked) >= NOTABLE_GIB:
        notes.append(f"With the flags as asked {sum(asked):.2f} GiB would be set aside for requests that never run.")
    return notes


def frontier(report: StatusReport) -> Markup:
    """Requests against tokens of every set of flags; nothing when there is only what runs now."""
    points = [
        Point(words.neutral(point.mark), point.kind, point.max_running_requests, point.max_total_num_tokens)
        for point in report.frontier
    ]
    if len(points) < 2:
        return Markup()
    drawn = frontier_picture(
        points,
        wish_requests=report.wish.get("concurrency"),
        wish_tokens=report.wish.get("context"),
        context=next((point.context_len for point in report.frontier if point.kind == "chosen"), None),
    )
    return Markup(drawn)


def frontier_caption(report: StatusReport) -> str:
    kinds = {point.kind for point in report.frontier}
    said = {
        "chosen": "the diamond runs",
        "asked": "the square is what was asked",
        "option": "a numbered disc is an option of the table (predicted)",
    }
    marks = ", ".join(said[kind] for kind in said if kind in kinds)
    chosen = next((point.context_len for point in report.frontier if point.kind == "chosen"), None)
    dashed = f" On the dashed line all requests can be {chosen:,} tokens long at the same time." if chosen else ""
    return f"Each mark is a set of flags: {marks}.{dashed} Both axes are logarithmic."


def frontier_rows(report: StatusReport, known: set[str]) -> Rows:
    """What the picture shows, in words, with what each option changes and costs."""
    rows: Rows = []
    options = iter(report.trade_offs)
    for point in report.frontier:
        option = next(options, None) if point.kind == "option" else None
        rows.append(
            (
                strong(point.mark),
                option.to_get if option else {"chosen": "what runs", "asked": "the flags as asked"}.get(point.kind, ""),
                changes(point.change) if point.change else "–",
                f"{point.max_running_requests:,}",
                f"{point.max_total_num_tokens:,}",
                f"{point.max_total_num_tokens // point.max_running_requests:,}",
                option.costs if option else "–",
                proof(point.evidence, known),
            )
        )
    return rows


def wish_text(report: StatusReport) -> str:
    """What was wished for, in words."""
    wanted, at_once = report.wish.get("context"), report.wish.get("concurrency")
    parts = [f"contexts of {wanted:,} tokens" if wanted else "",
             f"{at_once:,} request{'' if at_once == 1 else 's'} at once" if at_once else ""]  # fmt: skip
    return " and ".join(part for part in parts if part)
