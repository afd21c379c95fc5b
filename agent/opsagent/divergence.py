"""Two runs side by side: their course as comparable items, the first place where they part, and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opsagent.journal.state import RunState
from opsagent.protocols import Event
from opsagent.replay.compare import first_difference, shown
from opsagent.transcript import Transcript, one_line

CONTEXT = 3


@dataclass(frozen=True, slots=True)
class Item:
    """One comparable thing that a run did."""

    event: str
    step: str
    kind: str
    value: dict[str, Any]


TELLING = ("cause", "state", "accepted", "verdict")
"""What of a result is compared: what decides how a run goes on. Measured numbers differ from day to day."""


def course(events: Sequence[Event]) -> list[Item]:
    """Steps, calls with their arguments, decisions, how calls ended, checks and remedies; no times, ids or measurements."""
    items: list[Item] = []
    step, tools = "", {}
    for event in events:
        data = event.data
        if event.type == "step.entered":
            step = str(data.get("step", ""))
            items.append(Item(event.id, step, f"enters step {step}", {}))
        elif event.type == "call.intent":
            call, verdict = data["call"], data.get("verdict") or {}
            tools[call["id"]] = call["tool"]
            value = {"args": call["args"], "role": call.get("role", ""), "tier": verdict.get("tier")}
            items.append(Item(event.id, step, f"call {call['tool']}", value))
        elif event.type == "approval.decided":
            value = {"answer": data.get("answer"), "by": data.get("by")}
            items.append(Item(event.id, step, f"decision on {tools.get(str(data.get('call')), 'a call')}", value))
        elif event.type in ("call.finished", "call.failed", "call.unknown"):
            result = {key: (data.get("result") or {}).get(key) for key in TELLING}
            value = {"ok": data.get("ok"), "result": result, "what": data.get("what")}
            items.append(
                Item(event.id, step, f"{event.type.split('.')[1]} {tools.get(str(data.get('call')), '')}", value)
            )
        elif event.type == "step.check":
            items.append(Item(event.id, step, f"check {data.get('expr')}", {"ok": data.get("ok")}))
        elif event.type == "remedy.applied":
            value = {"change": data.get("change"), "next": data.get("next")}
            items.append(Item(event.id, step, f"remedy for {data.get('cause')}", value))
        elif event.type == "run.finished":
            items.append(Item(event.id, step, "end", {"status": data.get("status")}))
    return items


def parting(one: Sequence[Event], other: Sequence[Event]) -> dict[str, Any] | None:
    """The first divergence: `{at, step, what, a, b}` with a few lines of both runs around it; None if there is none."""
    left, right = course(one), course(other)
    for place in range(max(len(left), len(right))):
        a = left[place] if place < len(left) else None
        b = right[place] if place < len(right) else None
        what = _differs(a, b)
        if what:
            known = a or b
            assert known is not None
            return {
                "at": place + 1, "step": known.step, "what": what,
                "a": _around(one, left, place), "b": _around(other, right, place),
            }  # fmt: skip
    return None


def _differs(a: Item | None, b: Item | None) -> str:
    if a is None or b is None:
        known = a or b
        assert known is not None
        return f"{'B' if a is None else 'A'} ends before, the other goes on with {known.kind}"
    if a.kind != b.kind:
        return one_line(f"A: {a.kind} ({a.event}), B: {b.kind} ({b.event})")
    found = first_difference(a.value, b.value)
    if found is None:
        return ""
    return one_line(f"{a.kind}: {found.path}: A {shown(found.left)}, B {shown(found.right)}")


def _around(events: Sequence[Event], items: Sequence[Item], place: int) -> list[str]:
    """Lines of the transcript around an item."""
    if not items:
        return []
    ident = items[min(place, len(items) - 1)].event
    lines = list(Transcript(turns=False).lines(events))
    at = next((i for i, line in enumerate(lines) if int(line.event[1:]) >= int(ident[1:])), len(lines) - 1)
    return [f"{'>' if i == at else ' '} {lines[i].event} {'  ' * lines[i].depth}{lines[i].text[:160]}"
            for i in range(max(0, at - CONTEXT), min(len(lines), at + 2))]  # fmt: skip


def totals(state: RunState) -> dict[str, Any]:
    """What a run used and did."""
    tiers = Counter(str(call.verdict.get("tier", "?")) for call in state.calls.values() if call.verdict)
    usage = state.usage
    return {
        "status": state.status or "unfinished",
        "turns": usage.turns,
        "calls": usage.calls,
        "calls by tier": dict(sorted(tiers.items())),
        "remedies": len(state.remedies),
        "denials": usage.denials,
        "retries": usage.retries,
        "tokens in": usage.tokens_in,
        "tokens out": usage.tokens_out,
        "wall_s": round(usage.wall_s, 1),
        "waiting_s": round(usage.waiting_s, 1),
    }
