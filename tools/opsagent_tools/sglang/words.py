"""A plan for people: one line, and the table that the command line prints."""

from __future__ import annotations

from opsagent_tools.sglang.plan import Option, Plan


def tokens(count: int) -> str:
    """18841 → 18,800: no false precision."""
    digits = max(0, len(str(abs(count))) - 4)
    return f"{round(count, -max(2, digits)) if count > 1000 else count:,}"


def plan_line(plan: Plan) -> str:
    """One line: does it start, with which limits."""
    if plan.verdict == "fails" or plan.limits is None:
        head = f"would fail: {plan.cause or plan.failure}"
    else:
        limits = plan.limits
        head = f"starts · {_requests(limits.max_running_requests)} · {tokens(limits.max_total_num_tokens)} tokens"
    if plan.proposal is not None and plan.proposal.change:
        limits = plan.proposal.limits
        head += (
            f" — better: {change_text(plan.proposal.change)} gives {_requests(limits.max_running_requests)}, "
            f"{tokens(limits.max_total_num_tokens)} tokens"
        )
    return head


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"


def change_text(change: dict[str, str | None]) -> str:
    """`--max-running-requests 4`; removed flags as `without …`."""
    gone = [flag for flag, value in change.items() if value is None]
    set_ = [f"{flag} {value}".strip() for flag, value in change.items() if value is not None]
    if any(flag == "--speculative-algorithm" for flag in gone):
        set_.append("without MTP")
        gone = [flag for flag in gone if not flag.startswith("--speculative")]
    return " ".join([*set_, *(f"without {flag}" for flag in gone)])


def cost_text(option: Option) -> str:
    """What an option costs, in words."""
    cost = option.cost
    words = [part for part in (cost.quality, cost.speed, cost.risk) if part]
    if cost.risk and cost.spare_gib < -0.5:
        words[-1] = f"{-cost.spare_gib:.1f} GiB less spare for graphs, draft and prefill"
    return "; ".join(words) or "nothing you would notice"


def plan_text(plan: Plan) -> str:
    """The whole plan for a terminal: verdict, budget, what binds it, and what is better."""
    parts = [_verdict(plan), _budget(plan), _bound(plan), _better(plan), _rest(plan)]
    return "\n\n".join(part for part in parts if part)


def _verdict(plan: Plan) -> str:
    if plan.limits is None:
        lines = [f"would fail · {plan.failure} ({plan.cause})", f"  {plan.words}"]
        return "\n".join([*lines, *([f"  resolved by {plan.fix}"] if plan.fix else [])])
    limits, interval = plan.limits, plan.intervals.max_total_num_tokens
    span = f" ({tokens(interval[0])} to {tokens(interval[1])})" if interval else ""
    line = f"starts · {_requests(limits.max_running_requests)} · {tokens(limits.max_total_num_tokens)} tokens{span}"
    return f"{line}   {plan.architecture}, SGLang {plan.sglang}"


def _budget(plan: Plan) -> str:
    gib = plan.per_gpu_gib
    if gib is None or plan.limits is None:
        return ""
    terms = [
        ("weights", gib.weights),
        ("reserve for verification", gib.spec_reserve if gib.spec_reserve > gib.mamba_intermediate + 0.05 else 0.0),
        ("state", gib.mamba_state),
        ("verification", gib.mamba_intermediate),
        ("KV", gib.kv_cache),
        ("left for draft, graphs, prefill", max(0.0, gib.pool_end_avail)),
    ]
    lines = [
        f"per GPU, GiB of {gib.free:.1f} free ({plan.intervals.basis}), mem-fraction {plan.mem_fraction_static:.4g}"
    ]
    lines += [f"  {name:34s}{value:7.1f} {bar(value, gib.free)}" for name, value in terms if value >= 0.005]
    return "\n".join(lines)


def bar(value: float, whole: float, width: int = 24) -> str:
    """A bar of eighths of a character."""
    eighths = round(max(0.0, value) / max(whole, 1e-9) * width * 8)
    full, part = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")


def _bound(plan: Plan) -> str:
    lines = [f"bound by    {plan.binding_constraint}"] if plan.binding_constraint and plan.limits else []
    lines += [f"note        {note}" for note in plan.notes]
    if plan.balance is not None and plan.limits is not None:
        balance = plan.balance
        lines.append(
            f"balance     --mamba-full-memory-ratio {balance.balanced_ratio:g} for requests of "
            f"{balance.tokens_per_request:,} tokens ({balance.note})"
        )
    return "\n".join(lines)


def _better(plan: Plan) -> str:
    if not plan.advice:
        return ""
    rows = [(change_text(option.change), option) for option in plan.advice]
    width = max(44, *(len(text) for text, _option in rows))
    head = f"{'better, on the same cards (cheapest change first)':{width + 2}s} requests    tokens   costs"
    lines = [head]
    for text, option in rows:
        limits = option.limits
        figures = f"{limits.max_running_requests:9,d} {tokens(limits.max_total_num_tokens):>9s}"
        lines.append(f"  {text:{width}s} {figures}   {cost_text(option)}")
    return "\n".join(lines)


def _rest(plan: Plan) -> str:
    lines = []
    if plan.proposal is not None:
        lines.append(f"proposal    {' '.join(plan.proposal.flags)}")
    elif plan.wish is not None:
        lines.append("proposal    none: no flags that we know meet the wish on these cards")
    if plan.calibration:
        lines.append(f"learned     {plan.calibration}")
    lines += [f"not modelled: {gap}" for gap in plan.not_modelled]
    return "\n".join(lines)
