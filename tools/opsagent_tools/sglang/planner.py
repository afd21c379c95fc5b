"""The planner: a model, cards, flags and a version in; a `Plan` out. Pure: nothing is read but what is passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsagent_tools.sglang.allocator import GIB
from opsagent_tools.sglang.arithmetic import NEWEST
from opsagent_tools.sglang.advice import search
from opsagent_tools.sglang.arguments import read_arguments
from opsagent_tools.sglang.calibration import NO_CALIBRATION, Calibration
from opsagent_tools.sglang.case import Assessment, Case, make_case
from opsagent_tools.sglang.checkpoint import CheckpointFacts
from opsagent_tools.sglang.explain import binding, notes_of, sources_of
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.interval import intervals_of
from opsagent_tools.sglang.judge import judge
from opsagent_tools.sglang.plan import Asked, Limits, PerGpu, Plan, Wish

__all__ = ["NEWEST", "Case", "GpuFacts", "Plan", "Wish", "judge", "plan"]


def plan(
    config: Mapping[str, Any],
    *,
    gpus: GpuFacts,
    flags: Sequence[str] = (),
    sglang: str = NEWEST,
    env: Mapping[str, str] | None = None,
    free_gib: float | None = None,
    want: Wish | None = None,
    keep: Sequence[str] = (),
    checkpoint: CheckpointFacts | None = None,
    draft_config: Mapping[str, Any] | None = None,
    calibration: Calibration = NO_CALIBRATION,
) -> Plan:
    """Predict the launch of `flags` and find better ones.

    `free_gib` is the free memory per GPU at "Load weight begin", None when only the total is known. `keep` names what must not
    change (`speculation`, `precision`, or a flag). Raises InputError for a configuration that is not a model's.
    """
    case = make_case(
        config,
        gpus=gpus,
        sglang=sglang,
        env=env or {},
        free_gib=free_gib,
        checkpoint=checkpoint,
        draft_config=draft_config,
        calibration=calibration,
    )
    arguments = read_arguments(list(flags), case)
    found, failed = judge(case, arguments)
    better = search(case, arguments, found, failed, want, keep)
    return Plan(
        verdict="fails" if failed else "fits",
        failure=failed.failure if failed else None,
        cause=failed.cause if failed else None,
        words=failed.words if failed else "",
        fix=failed.fix if failed else "",
        sglang=case.version,
        architecture=case.spec.architecture,
        asked=Asked(flags=list(flags)),
        limits=limits_of(found) if not failed else None,
        intervals=intervals_of(case, arguments.values, found)
        if not failed
        else intervals_of(case, arguments.values, None),
        per_gpu_gib=per_gpu(found),
        mem_fraction_static=round(found.settings.mem_fraction, 6) if found is not None else None,
        binding_constraint=binding(case, found, failed),
        proposal=better.proposal,
        advice=better.advice,
        balance=better.balance,
        notes=notes_of(case, arguments, found, failed, want),
        not_modelled=not_modelled(case, found),
        sources=sources_of(case, found),
        wish=want,
        calibration=calibration.text(),
        slots=found.budget.slots if found and found.budget and found.budget.state else None,
        slots_per_request=found.budget.slots_per_request if found and found.budget and found.budget.state else None,
        gpus=gpus.count,
        assessed=better.assessed,
    )


def limits_of(found: Assessment | None) -> Limits | None:
    if found is None or found.budget is None:
        return None
    budget = found.budget
    per_context = budget.tokens // budget.context if budget.context else 0
    return Limits(
        max_total_num_tokens=budget.tokens,
        max_running_requests=budget.running,
        context_len=budget.context,
        max_prompt_tokens=budget.max_prompt,
        full_contexts_at_once=min(per_context, budget.running),
    )


def per_gpu(found: Assessment | None) -> PerGpu | None:
    """GiB of every term of the budget, rounded as SGLang's log rounds."""
    if found is None or found.budget is None:
        return None
    budget = found.budget

    def gib(size: float) -> float:
        return round(size / GIB, 2)

    return PerGpu(
        free=gib(budget.free),
        weights=gib(budget.weights),
        draft_weights=gib(budget.draft_weights),
        spec_reserve=gib(budget.spec_reserve),
        mamba_state=gib(budget.state_bytes),
        mamba_intermediate=gib(budget.intermediate_bytes),
        kv_cache=gib(budget.kv_bytes),
        draft_kv=gib(budget.draft_kv_bytes),
        pool_end_avail=gib(budget.pool_end),
        usable=gib(budget.usable),
        graphs=round(found.after.graphs + found.after.piecewise, 2),
        other_after_pools=round(found.after.workspace, 2),
        end_avail=round(found.after.end, 2),
        parts={part: gib(size) for part, size in found.parts.items() if part != "total"},
    )


def not_modelled(case: Case, found: Assessment | None) -> list[str]:
    """Everything that this prediction does not know."""
    gaps = [case.remark] if case.remark else []
    gaps += case.spec.not_modelled
    if found is not None and found.draft.note:
        gaps.append(found.draft.note)
    if found is not None and found.settings.graphs:
        gaps.append("CUDA graph memory (no formula in SGLang; estimated from similar launches)")
    return gaps
