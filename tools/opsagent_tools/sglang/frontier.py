"""The search for better flags: every combination of moves is assessed, dominated ones are left out, the cheapest
comes first.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from opsagent_tools.sglang.allocator import GIB
from opsagent_tools.sglang.case import Assessment, Case, assess
from opsagent_tools.sglang.moves import Move, applied, dimensions, merged, tp_moves
from opsagent_tools.sglang.plan import Wish
from opsagent_tools.sglang.refusals import memory_failure
from opsagent_tools.sglang.values import Values

SETS = 4096
"""At most so many flag sets are assessed in one search."""
MOVES = 3
"""More changes at once than this are not advice any more."""


@dataclass(frozen=True, slots=True)
class Point:
    """One set of flags of the frontier: what changes, what it gives, what it costs."""

    move: Move
    count: int
    tokens: int
    running: int
    context: int
    pool_end: float
    spare: float
    meets: bool

    @property
    def cost(self) -> float:
        return self.move.rank + 0.02 * self.count


@dataclass(frozen=True, slots=True)
class Frontier:
    """All points that no other point beats, cheapest first, and how many sets were assessed."""

    points: list[Point] = field(default_factory=list)
    assessed: int = 0


def margin_gib(case: Case, found: Assessment) -> float:
    """What should stay free for activations when the fraction is raised by hand: an estimate, see docs/planner.md."""
    return 1.5 + 0.5 * max(found.settings.chunked_prefill, 2048) / 4096 + (1.0 if case.spec.vision is not None else 0.0)


def explore(case: Case, values: Values, base: Assessment, wish: Wish, keep: frozenset[str]) -> Frontier:
    """Assess the product of all moves around `values`; `base` is what they give as they are."""
    choices = dimensions(case, values, base.settings, wish, keep)
    if needs_more_cards(case, base, wish) and not keep & {"tp", "tp_size"}:
        choices.insert(0, tp_moves(case, base.settings))
    points = []
    count = 0
    for combination in itertools.product(*choices):
        moves = [move for move in combination if move.values]
        if len(moves) > MOVES:
            continue
        count += 1
        if count > SETS:
            break
        point = _point(case, values, moves, wish)
        if point is not None:
            points.append(point)
    return Frontier(pareto(points), count)


def needs_more_cards(case: Case, base: Assessment, wish: Wish) -> bool:
    """Whether the cards in use cannot hold the wish."""
    budget = base.budget
    if base.settings.tp * base.settings.pp >= case.gpu.count:
        return False
    if budget is None or memory_failure(case, base) is not None:
        return True
    return budget.tokens < (wish.context or 0) or budget.running < (wish.concurrency or 0)


def _point(case: Case, values: Values, moves: Sequence[Move], wish: Wish) -> Point | None:
    changed = applied(values, moves)
    found = assess(case, changed)
    budget = found.budget
    if budget is None or memory_failure(case, found) is not None:
        return None
    if found.settings.tp * found.settings.pp > case.gpu.count:
        return None
    raised = any("mem_fraction_static" in move.values for move in moves)
    if raised and found.after.lowest < margin_gib(case, found):
        return None
    meets = (
        budget.tokens >= (wish.context or 0)
        and budget.context >= (wish.context or 0)
        and budget.running * max(1, found.settings.dp) >= (wish.concurrency or 0)
    )
    return Point(
        merged(moves),
        len(moves),
        budget.tokens,
        budget.running,
        budget.context,
        budget.pool_end / GIB,
        found.after.end,
        meets,
    )


def pareto(points: Sequence[Point]) -> list[Point]:
    """Points that no cheaper or equally cheap point beats in tokens and requests, wish first, then cheapest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.tokens, -p.running)):
        if not any(other.tokens >= point.tokens and other.running >= point.running for other in kept):
            kept.append(point)
    return sorted(kept, key=lambda p: (not p.meets, p.cost, -p.tokens))
