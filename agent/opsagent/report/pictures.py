"""What the pictures of the report show: where each GPU's memory went, and which sets of flags give which limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from opsagent.journal.state import CallState
from opsagent.report.evidence import Evidence, proof
from opsagent.report.model import FrontierPoint, GpuBudget, Limit, Segment, TradeOff

SMALL_GIB = 0.005
"""What is smaller is not shown."""


def budgets(seen: Evidence, launch: CallState | None) -> list[GpuBudget]:
    """The newest plan's flags as asked, the ones that it proposed, and what every rank of the launch logged."""
    call = seen.last("estimate_vram")
    plan = (call.result or {}) if call is not None else {}
    asked, proposal = plan.get("per_gpu_gib") or {}, (plan.get("proposal") or {}).get("per_gpu_gib") or {}
    found = [_planned("flags as asked", "asked", asked, proof(call))] if plan.get("verdict") == "fits" else []
    if proposal and proposal != asked:
        found.append(_planned("flags as proposed", "planned", proposal, proof(call)))
    return [bar for bar in found if bar is not None] + _logged(launch)


def _planned(
    label: str, source: Literal["asked", "planned"], gib: dict[str, Any], evidence: list[str]
) -> GpuBudget | None:
    """A prediction (opsagent_tools.sglang.plan.PerGpu). The reserve for verification is withheld from the pools: what of it
    is not used by the states of the requests that run is still free, and nobody's.
    """
    terms = {key: float(value) for key, value in gib.items() if isinstance(value, (int, float))}
    if not terms.get("free") or not terms.get("weights"):
        return None
    part = terms.get
    at_pools = part("pool_end_avail", 0.0)
    left = part("end_avail", 0.0) or at_pools
    graphs, other = part("graphs", 0.0), part("other_after_pools", 0.0)
    rest = at_pools - left - graphs - other  # the draft model, its KV, and what it gives back after loading
    aside = min(max(0.0, part("spec_reserve", 0.0) - part("mamba_intermediate", 0.0)), max(0.0, left))
    return GpuBudget(
        label=label,
        source=source,
        whole_gib=terms["free"],
        segments=_segments(
            [
                ("weights", terms["weights"]),
                ("recurrent_state", part("mamba_state", 0.0)),
                ("verification", part("mamba_intermediate", 0.0)),
                ("kv_cache", part("kv_cache", 0.0)),
                ("draft", rest if part("draft_weights", 0.0) else 0.0),
                ("graphs", graphs),
                ("other", other if part("draft_weights", 0.0) else other + rest),
                ("set_aside", aside),
                ("free", left - aside),
            ]
        ),
        evidence=evidence,
    )


def _segments(terms: Iterable[tuple[str, float]]) -> list[Segment]:
    return [Segment(term=term, gib=round(gib, 2)) for term, gib in terms if gib >= SMALL_GIB]


def _logged(launch: CallState | None) -> list[GpuBudget]:
    """One bar for each rank whose memory lines the launch saw (`memory` of its result, in the order of the log)."""
    result = (launch.result or {}) if launch is not None else {}
    ranks: dict[str, list[dict[str, Any]]] = {}
    for row in result.get("memory") or []:
        if isinstance(row, dict):
            ranks.setdefault(str(row.get("rank") or ""), []).append(row)
    cards = [str(name) for name in result.get("gpus") or []]
    bars = []
    for number, (rank, rows) in enumerate(sorted(ranks.items())):
        card = cards[number] if number < len(cards) else ""
        bar = _rank(" · ".join(filter(None, ("logged", rank, card))), rows, proof(launch))
        bars += [bar] if bar is not None else []
    return bars


def _rank(label: str, rows: Sequence[dict[str, Any]], evidence: list[str]) -> GpuBudget | None:
    begin, weights, pools = _first(rows, "weights begin"), _first(rows, "weights end"), _first(rows, "pools end")
    whole, loaded, after = begin.get("avail_gib"), weights.get("avail_gib"), pools.get("avail_gib")
    if whole is None or loaded is None or after is None:
        return None
    last = [row["avail_gib"] for row in rows if row.get("avail_gib") is not None][-1]
    graphs = sum(row.get("used_gib") or 0.0 for row in rows if row.get("at") == "graphs end")
    terms = [
        ("weights", whole - loaded),
        ("pools", loaded - after),
        ("draft" if sum(row.get("at") == "weights end" for row in rows) > 1 else "other", after - last - graphs),
        ("graphs", graphs),
        ("free", last),
    ]
    return GpuBudget(label=label, source="logged", whole_gib=whole, segments=_segments(terms), evidence=evidence)


def _first(rows: Sequence[dict[str, Any]], at: str) -> dict[str, Any]:
    return next((row for row in rows if row.get("at") == at), {})


def frontier(seen: Evidence, limits: Sequence[Limit], options: Sequence[TradeOff]) -> list[FrontierPoint]:
    """The flags as asked, the limits that hold now, and the trade-offs in their order; nothing when there is no choice."""
    if not limits and not options:
        return []
    call = seen.last("estimate_vram")
    plan = (call.result or {}) if call is not None else {}
    now = {limit.name: limit.value for limit in limits}
    found = [_point("now", "chosen", now, {}, list(limits[0].evidence) if limits else [])]
    asked = plan.get("limits") or {}
    if plan.get("verdict") == "fits" and any(now.get(name) != asked.get(name) for name in PAIR):
        found.append(_point("as asked", "asked", asked, {}, proof(call)))
    found += [
        _point(str(number), "option", option.limits, option.change, option.evidence)
        for number, option in enumerate(options, 1)
    ]
    return [point for point in found if point is not None]


PAIR = ("max_running_requests", "max_total_num_tokens")


def _point(
    mark: str,
    kind: Literal["asked", "chosen", "option"],
    limits: dict[str, Any],
    change: dict[str, str | None],
    evidence: list[str],
) -> FrontierPoint | None:
    requests, tokens = (limits.get(name) for name in PAIR)
    if not requests or not tokens:
        return None
    context = limits.get("context_len")
    return FrontierPoint(
        mark=mark,
        kind=kind,
        max_running_requests=int(requests),
        max_total_num_tokens=int(tokens),
        context_len=int(context) if context else None,
        change=change,
        evidence=evidence,
    )


def wish(seen: Evidence) -> dict[str, int]:
    """What was asked for in numbers: the wish of the newest plan."""
    call = seen.last("estimate_vram")
    args = call.call.args if call is not None else {}
    named = {"context": args.get("want_context"), "concurrency": args.get("want_concurrency")}
    return {name: int(value) for name, value in named.items() if isinstance(value, (int, float))}
