"""How far the logged limits may lie from the predicted ones: the prediction repeated at the edges of what is not
known exactly.
"""

from __future__ import annotations

from opsagent_tools.sglang.case import Assessment, Case, assess, free_of
from opsagent_tools.sglang.plan import Intervals
from opsagent_tools.sglang.values import Values

WEIGHT_GIB = 0.03
"""How far computed weights may be off per GPU (docs/planner.md)."""


def intervals_of(case: Case, values: Values, found: Assessment | None) -> Intervals:
    """Tokens and requests over the range of free memory and weights."""
    if found is None or found.budget is None:
        return Intervals(basis="")
    free = free_of(case, found.settings)
    steps = sorted(
        {free.low - free.gib, 0.0, free.high - free.gib, (free.low - free.gib) / 2, (free.high - free.gib) / 2}
    )
    ends = [(steps[0], WEIGHT_GIB), (steps[-1], -WEIGHT_GIB), *((step, 0.0) for step in steps)]
    tokens, running = [], []
    for shift, weights in ends:
        other = assess(case, values, free_shift=shift, weight_shift=weights).budget
        if other is not None:
            tokens.append(max(0, other.tokens))
            running.append(max(0, other.running))
    edge = None
    budget = found.budget
    if budget.state is not None and len(set(running)) > 1:
        edge = f"{budget.slots} state slots sit near an edge: {min(running)} to {max(running)} requests"
    return Intervals(
        max_total_num_tokens=(min(tokens), max(tokens)),
        max_running_requests=(min(running), max(running)),
        basis=free.basis,
        edge=edge,
    )
