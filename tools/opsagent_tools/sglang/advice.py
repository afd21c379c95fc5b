"""From the frontier to advice and to one proposal: complete flags that meet the wish and that this version accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.sglang.allocator import GIB
from opsagent_tools.sglang.arguments import Arguments, apply_change, read_arguments, without_unknown
from opsagent_tools.sglang.budget import Budget
from opsagent_tools.sglang.case import Assessment, Case, Failed, assess
from opsagent_tools.sglang.explain import binding, limits_of, per_gpu
from opsagent_tools.sglang.frontier import Frontier, Point, explore
from opsagent_tools.sglang.interval import intervals_of
from opsagent_tools.sglang.judge import judge
from opsagent_tools.sglang.moves import Move, applied, merged, repair
from opsagent_tools.sglang.plan import Balance, Change, Cost, Limits, Option, Proposal, Wish
from opsagent_tools.sglang.values import Values

REPAIRS = 6
SHOWN_BY_KIND = {"plain": 5, "prefixes": 1, "speculation": 1, "quality": 2}
"""Lines of advice by what they cost: nothing or spare memory, the prefix cache, speculation, quality."""


@dataclass(frozen=True, slots=True)
class Better:
    """What the search found; `options` are the frontier as advice."""

    proposal: Proposal | None = None
    advice: list[Option] = field(default_factory=list)
    balance: Balance | None = None
    assessed: int = 0
    meant: Wish = field(default_factory=Wish)


def search(
    case: Case,
    arguments: Arguments,
    found: Assessment | None,
    failed: Failed | None,
    want: Wish | None,
    keep: Sequence[str],
) -> Better:
    """Better flags than those asked for. A refusal is answered first, then the space around is searched."""
    kept = frozenset(name.lstrip("-") for name in keep)
    base, repairs = repaired(case, arguments, failed)
    if base is None:
        return Better()
    meant = meant_wish(case, base, want)
    if meant.context and meant.context > case.spec.context and not _overwrite(case):
        return Better(meant=meant)
    start = list(repairs)
    given = base.get("context_length")
    if want is not None and want.context and (given is None or int(given) < want.context):
        start.append(Move({"context_length": want.context}, 0, why="as wished"))
    values = applied(base, start[len(repairs) :])
    here = assess(case, values)
    frontier = explore(case, values, here, meant, kept)
    proposal = propose(case, arguments, start, frontier, meant)
    return Better(
        proposal,
        options(case, arguments, start, frontier, found if failed is None else None, here),
        balance_of(case, here, meant),
        frontier.assessed,
        meant,
    )


def repaired(case: Case, arguments: Arguments, failed: Failed | None) -> tuple[dict[str, Any] | None, list[Move]]:
    """Values after SGLang's refusals were answered, and the moves that did it; None when one has no answer."""
    flags = start_flags(arguments, case)
    if arguments.unknown is not None:
        arguments = read_arguments(flags, case)
        failed = judge(case, arguments)[1]
    values: dict[str, Any] = dict(arguments.values)
    moves: list[Move] = []
    current = failed
    for _ in range(REPAIRS):
        if current is None or current.failure != "arg-rejected":
            break
        move = repair(case, values, current)
        if move is None:
            return None, []
        moves.append(move)
        values = applied(values, [move])
        changed = apply_change(flags, merged(moves).change, case.version)
        current = judge(case, read_arguments(changed, case))[1]
    if current is not None and current.failure == "unknown-architecture":
        return None, []
    return values, moves


def start_flags(arguments: Arguments, case: Case) -> list[str]:
    """The flags asked for, without those that this version does not have."""
    return list(arguments.flags) if arguments.unknown is None else without_unknown(arguments.flags, case.version)


def meant_wish(case: Case, values: Values, want: Wish | None) -> Wish:
    """The wish, or what an operator would want without saying it: the context asked for, four requests at once."""
    if want is not None and (want.context or want.concurrency):
        return want
    asked = values.get("max_running_requests")
    return Wish(context=None, concurrency=min(4, int(asked)) if asked is not None else 4)


def _overwrite(case: Case) -> bool:
    return str(case.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "")).lower() in ("1", "true", "yes", "on")


def propose(case: Case, arguments: Arguments, start: list[Move], frontier: Frontier, wish: Wish) -> Proposal | None:
    """The cheapest point that meets the wish, whose complete flags SGLang accepts; surest first among equals."""
    for point in [point for point in frontier.points if point.meets]:
        change = merged([*start, point.move]).change
        flags = apply_change(start_flags(arguments, case), change, case.version)
        read = read_arguments(flags, case)
        found, failed = judge(case, read)
        if failed is not None or found is None or found.budget is None:
            continue
        intervals = intervals_of(case, read.values, found)
        tokens, running = intervals.max_total_num_tokens, intervals.max_running_requests
        if tokens is None or running is None:
            continue
        if tokens[0] < (wish.context or 0) or running[0] < (wish.concurrency or 0):
            continue
        budget = found.budget
        return Proposal(
            flags=flags,
            limits=limits_of(found) or _limits(budget.tokens, budget.running, budget.context),
            interval=tokens,
            meets_wish=True,
            full_contexts_at_once=min(budget.tokens // max(1, budget.context), budget.running),
            change=change,
            why=merged([*start, point.move]).why,
            cost=_cost(point, 0.0),
            per_gpu_gib=per_gpu(found),
            intervals=intervals,
            binding_constraint=binding(case, found, None),
            mem_fraction_static=round(found.settings.mem_fraction, 6),
        )
    return None


def _limits(tokens: int, running: int, context: int) -> Limits:
    return Limits(
        max_total_num_tokens=tokens,
        max_running_requests=running,
        context_len=context,
        max_prompt_tokens=max(0, min(context, tokens) - 6),
        full_contexts_at_once=min(tokens // max(1, context), running),
    )


def _cost(point: Point, asked_pool_end: float) -> Cost:
    move = point.move
    return Cost(
        quality=move.quality, speed=move.speed, risk=move.risk, spare_gib=round(point.pool_end - asked_pool_end, 2)
    )


def options(
    case: Case, arguments: Arguments, start: list[Move], frontier: Frontier, asked: Assessment | None, here: Assessment
) -> list[Option]:
    """The frontier as advice: only what beats the flags asked for, and not the same thing twice."""
    before = asked.budget if asked is not None else here.budget
    shown: list[Option] = []
    taken: dict[str, int] = {}
    for point in frontier.points:
        kind = kind_of(point.move)
        if taken.get(kind, 0) >= SHOWN_BY_KIND[kind] or not merged([*start, point.move]).values:
            continue
        if asked is not None and before is not None and beats(before, point):
            continue
        if not all(notable(point, option.limits) for option in shown):
            continue
        reference = before.pool_end / GIB if before is not None and before.tokens > 0 else point.pool_end
        option = option_of(case, arguments, merged([*start, point.move]), point, reference)
        if option is not None:
            shown.append(option)
            taken[kind] = taken.get(kind, 0) + 1
    return shown


def kind_of(move: Move) -> str:
    """What a change gives up."""
    if move.quality:
        return "quality"
    if any(name.startswith("speculative") and value is None for name, value in move.values.items()):
        return "speculation"
    return "prefixes" if "disable_radix_cache" in move.values else "plain"


def beats(before: Budget, point: Point) -> bool:
    """Whether the flags as asked already give what this point gives."""
    return point.tokens <= before.tokens and point.running <= before.running


def option_of(case: Case, arguments: Arguments, move: Move, point: Point, reference: float) -> Option | None:
    """One line of advice, None when this version would not accept its flags."""
    change: Change = move.change
    flags = apply_change(start_flags(arguments, case), change, case.version)
    if judge(case, read_arguments(flags, case))[1] is not None:
        return None
    return Option(
        change=change,
        limits=_limits(point.tokens, point.running, point.context),
        cost=_cost(point, reference),
        meets_wish=point.meets,
        flags=flags,
        pool_end_avail=round(point.pool_end, 2),
        why=move.why,
    )


def notable(point: Point, shown: Limits) -> bool:
    """Whether a reader would care about this point beside one that is shown: a tenth more tokens, a fifth more requests."""
    return point.tokens >= 1.1 * shown.max_total_num_tokens or point.running >= 1.2 * shown.max_running_requests


def balance_of(case: Case, found: Assessment, wish: Wish) -> Balance | None:
    """The ratio at which state and KV run out together, from sizes alone; no launch is needed for it."""
    budget, settings = found.budget, found.settings
    if budget is None or budget.state is None or budget.price.cell <= 0:
        return None
    tokens = wish.context or settings.context
    draft = settings.spec.draft_tokens if settings.spec else 0
    slots = max(1, budget.slots_per_request)
    ratio = (slots + draft) * budget.state.per_request / budget.price.cell / max(1, tokens)
    note = "neither pool binds first at this ratio"
    if ratio < 0.1:
        pinned = (wish.concurrency or 1) * slots
        note = f"requests this long need little state: pin --max-mamba-cache-size {pinned}, leave the rest to KV"
    return Balance(
        ratio=settings.mamba_ratio,
        balanced_ratio=round(ratio, 3),
        tokens_per_request=tokens,
        pinned_slots=(wish.concurrency or 1) * slots,
        note=note,
    )
