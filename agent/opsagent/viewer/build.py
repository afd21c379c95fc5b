"""From events to a view. Pure but for reading kept outputs through the function that it is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opsagent.journal.fold import seconds_between
from opsagent.journal.state import RunState
from opsagent.protocols import Event
from opsagent.transcript import Transcript, header, kind_of, one_line
from opsagent.viewer.claims import claims_of
from opsagent.viewer.clip import clip, fair_share
from opsagent.viewer.folds import Read, folds_of
from opsagent.viewer.model import Claim, Item, Row, Section, View

BUDGET = 12_000_000
"""Characters of all long texts of a view. A page of this size opens in a second or two."""
CITED = 200
"""So many cited events keep their long texts whatever the budget says: they are what people come for."""
Shaped = tuple[str, str]


def build_view(
    state: RunState,
    events: Sequence[Event],
    status: str,
    read: Read,
    *,
    report: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    budget: int = BUDGET,
) -> View:
    """The view of a run: `state` is the fold of `events`, `report` what report.json holds, `read` gives kept outputs."""
    run = str(state.started.get("run") or "RUN")
    claims = claims_of(dict(report or {}), len(events))
    sections = _fit(tuple(_sections(events, _rows(events, run, read, _proves(claims)))), budget)
    folds = [fold for section in sections for item in section.items for row in item.rows for fold in row.folds]
    return View(
        run=run,
        headline=one_line(str((report or {}).get("headline") or "") or header(events, "")),
        status=status,
        simulated=str(state.started.get("lab") or "lab") if state.started.get("simulated") else "",
        facts=tuple(_facts(state, events)),
        claims=claims,
        sections=sections,
        warnings=tuple(warnings),
        secrets=dict(state.redactions),
        left_out=sum(fold.left_out for fold in folds),
    )


# --- rows ----------------------------------------------------------------------------------------------------------


def _proves(claims: Sequence[Claim]) -> dict[str, tuple[str, ...]]:
    """Event → anchors of the claims that cite it."""
    found: dict[str, list[str]] = {}
    for claim in claims:
        for event in claim.evidence:
            found.setdefault(event, []).append(claim.anchor)
    return {event: tuple(anchors) for event, anchors in found.items()}


def _rows(events: Sequence[Event], run: str, read: Read, proves: Mapping[str, tuple[str, ...]]) -> list[Row]:
    lines = Transcript(everything=True)
    secrets = _secrets(events)
    return [
        _row(event, lines, folds_of(event, run, read), proves.get(event.id, ()), secrets[event.id]) for event in events
    ]


def _row(event: Event, lines: Transcript, folds: Any, proves: tuple[str, ...], secrets: int) -> Row:
    line = lines.line(event)
    assert line is not None  # everything gets its line
    cited = event.data.get("evidence")
    evidence = tuple(str(name) for name in cited) if isinstance(cited, list) else ()
    if event.type == "redaction.applied" and event.data.get("by"):
        evidence = (str(event.data["by"]),)
    return Row(
        event.id,
        event.ts[11:19],
        event.type,
        kind_of(event.type),
        line.style,
        line.text,
        folds,
        evidence,
        proves,
        secrets,
    )


def _secrets(events: Sequence[Event]) -> Counter[str]:
    """Event → secrets that were replaced in it."""
    found: Counter[str] = Counter()
    for event in events:
        rules = event.data.get("rules")
        if event.type == "redaction.applied" and isinstance(rules, dict):
            found[str(event.data.get("by"))] += sum(n for n in rules.values() if isinstance(n, int))
    return found


# --- grouping ------------------------------------------------------------------------------------------------------


@dataclass
class _Draft:
    """A section that is being filled."""

    step: str
    title: str
    first: str
    last: str = ""
    left: bool = False
    items: list[tuple[Shaped, list[Row]]] = field(default_factory=list)
    """(shape, key) and rows: events with the key of an item that is there join it."""

    def add(self, shaped: Shaped, row: Row, joins: bool) -> None:
        for known, rows in reversed(self.items[-12:]) if joins else ():
            if known == shaped:
                rows.append(row)
                return
        self.items.append((shaped, [row]))


def _sections(events: Sequence[Event], rows: Sequence[Row]) -> Iterator[Section]:
    """Visits of steps, in order. What happens outside of one stands in sections of its own."""
    drafts: list[_Draft] = []
    for event, row in zip(events, rows, strict=True):
        if event.type == "step.entered":
            again = " (again)" if event.data.get("again") else ""
            drafts.append(_Draft(str(event.data.get("step")), f"{event.data.get('title') or ''}{again}", event.ts))
        elif event.type == "run.resumed" or not drafts or drafts[-1].left:
            title = "Resumed" if event.type == "run.resumed" else "Start" if not drafts else "After the step"
            drafts.append(_Draft("", title, event.ts))
        draft = drafts[-1]
        draft.last = event.ts
        draft.left = draft.left or event.type == "step.left"
        turn = draft.items[-1][0][0] == "turn" if draft.items else False
        draft.add(*_place(event, row, turn))
    if drafts and not drafts[-1].step and drafts[-1].title == "After the step":
        drafts[-1].title = "End"
    for number, draft in enumerate(drafts, start=1):
        yield Section(
            f"step-{number}", draft.step, one_line(draft.title),
            "" if not draft.step else "left" if draft.left else "open",
            seconds_between(draft.first, draft.last),
            tuple(Item(shape, tuple(rows)) for (shape, _key), rows in draft.items),  # type: ignore[arg-type]
        )  # fmt: skip


def _place(event: Event, row: Row, in_turn: bool) -> tuple[Shaped, Row, bool]:
    """Where a row goes: (shape, key), the row, and whether it may join an item that is there."""
    call = event.data.get("call")
    if event.type == "call.intent" and isinstance(call, dict):
        return ("call", str(call.get("id"))), row, False
    if event.type.startswith(("call.", "approval.")) and isinstance(call, str):
        return ("call", call), row, True
    if event.type.startswith("model."):
        return ("turn", ""), row, in_turn and event.type != "model.request"
    if event.type == "step.check":
        return ("checks", ""), row, not event.data.get("first")
    return ("event", row.event), row, False


# --- size ----------------------------------------------------------------------------------------------------------


def _fit(sections: tuple[Section, ...], budget: int) -> tuple[Section, ...]:
    """The sections with their long texts clipped alike, so that all of them together keep the budget."""
    rows = [row for section in sections for item in section.items for row in item.rows]
    kept = {row.event for row in [row for row in rows if row.proves][:CITED]}
    sizes = [len(fold.text) + len(fold.tail) for row in rows if row.event not in kept for fold in row.folds]
    most = fair_share(sizes, budget)
    if most >= max(sizes, default=0):
        return sections

    def fit(row: Row) -> Row:
        return row if row.event in kept else replace(row, folds=tuple(clip(fold, most) for fold in row.folds))

    return tuple(
        replace(section, items=tuple(replace(item, rows=tuple(map(fit, item.rows))) for item in section.items))
        for section in sections
    )


# --- head ----------------------------------------------------------------------------------------------------------


def _facts(state: RunState, events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """Who, where, when and how much, by name; empty ones are left out."""
    started, usage = state.started, state.usage
    book, hosts = started.get("runbook"), started.get("hosts")
    tokens = "" if not usage.tokens_in else f", {usage.tokens_in:,} + {usage.tokens_out or 0:,} tokens"
    waited = f", {usage.waiting_s:.0f} s of it waiting for approvals" if usage.waiting_s >= 1 else ""
    model = str(started.get("model") or "")
    found = {
        "runbook": f"{book.get('title') or book.get('name')} ({book.get('path')})" if isinstance(book, dict) else "",
        "hosts": ", ".join(f"{role} = {name}" for role, name in hosts.items() if name)
        if isinstance(hosts, dict)
        else "",
        "calls chosen by": "autopilot (no LLM)" if model == "autopilot" else model,
        "approvals": str(started.get("approve") or ("dry run" if started.get("dry") else "")),
        "began": f"{state.first_ts[:19].replace('T', ' ')} UTC" if state.first_ts else "",
        "took": f"{usage.wall_s:.0f} s{waited}",
        "events": f"{len(events):,}: {usage.turns} turns, {usage.calls} calls{tokens}",
        "secrets replaced": ", ".join(f"{rule} ×{count}" for rule, count in state.redactions.items()),
    }
    return ((name, text) for name, text in found.items() if text)
