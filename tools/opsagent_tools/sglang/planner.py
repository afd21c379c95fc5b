"""The planner: a model, cards, flags and a version in; a `Plan` out. Pure: nothing is read but what is passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsagent_tools.sglang.advice import Better, search
from opsagent_tools.sglang.arguments import read_arguments
from opsagent_tools.sglang.arithmetic import NEWEST
from opsagent_tools.sglang.calibration import NO_CALIBRATION, Calibration
from opsagent_tools.sglang.case import Assessment, Case, make_case
from opsagent_tools.sglang.checkpoint import CheckpointFacts
from opsagent_tools.sglang.explain import binding, limits_of, notes_of, per_gpu, sources_of
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.interval import intervals_of
from opsagent_tools.sglang.judge import judge
from opsagent_tools.sglang.plan import Asked, Plan, Wish

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
    advise: bool = True,
) -> Plan:
    """Predict the launch of `flags` and find better ones (not with `advise` off: one estimate only).

    `free_gib` is the free memory per GPU at "Load weight begin", None when only the total is known. `keep` names what
    must not change (`speculation`, `precision`, or a flag). Raises InputError for a configuration that is not a model's.
    """
    case = make_case(
        config, gpus=gpus, sglang=sglang, env=env or {}, free_gib=free_gib, checkpoint=checkpoint,
        draft_config=draft_config, calibration=calibration,
    )  # fmt: skip
    arguments = read_arguments(list(flags), case)
    found, failed = judge(case, arguments)
    better = search(case, arguments, found, failed, want, keep) if advise else Better()
    state = found.budget if found and found.budget and found.budget.state else None
    return Plan(
        verdict="fails" if failed else "fits", failure=failed.failure if failed else None,
        cause=failed.cause if failed else None, words=failed.words if failed else "", fix=failed.fix if failed else "",
        sglang=case.version, architecture=case.spec.architecture, asked=Asked(flags=list(flags)),
        limits=limits_of(found) if not failed else None,
        intervals=intervals_of(case, arguments.values, found if not failed else None), per_gpu_gib=per_gpu(found),
        mem_fraction_static=round(found.settings.mem_fraction, 6) if found is not None else None,
        binding_constraint=binding(case, found, failed), proposal=better.proposal, advice=better.advice,
        balance=better.balance, notes=notes_of(case, arguments, found, failed, want),
        not_modelled=not_modelled(case, found), sources=sources_of(case), wish=want, calibration=calibration.text(),
        corrections=calibration.corrections(), slots=state.slots if state else None,
        slots_per_request=state.slots_per_request if state else None, gpus=gpus.count, assessed=better.assessed,
    )  # fmt: skip


def not_modelled(case: Case, found: Assessment | None) -> list[str]:
    """Everything that this prediction does not know."""
    gaps = [case.remark] if case.remark else []
    gaps += case.spec.not_modelled
    if found is not None and found.draft.note:
        gaps.append(found.draft.note)
    if found is not None and found.settings.graphs:
        gaps.append("CUDA graph memory (no formula in SGLang; estimated from similar launches)")
    return gaps
