"""One question to the planner, prepared: model, cards, version, free memory; and the answer for one set of arguments.

`assess` is the whole prediction without prose. It is quick because what does not depend on the flags is prepared
once and what
depends on few of them (weights by parallelism) is remembered in the case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.sglang.after import NO_AFTER, After, after_pools
from opsagent_tools.sglang.allocator import GIB
from opsagent_tools.sglang.arithmetic import Arithmetic, nearest
from opsagent_tools.sglang.budget import STREAM_POOL, Budget, make_budget
from opsagent_tools.sglang.calibration import NO_CALIBRATION, Calibration
from opsagent_tools.sglang.checkpoint import CheckpointFacts, checkpoint_weights
from opsagent_tools.sglang.draft import NO_DRAFT, Draft, make_draft
from opsagent_tools.sglang.free import FreeMemory, free_memory
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.plan import Failure
from opsagent_tools.sglang.quant import Quant, read_quant
from opsagent_tools.sglang.read_spec import read_spec
from opsagent_tools.sglang.settings import A2A_BACKENDS, Settings, resolve
from opsagent_tools.sglang.state import Indivisible, StateSize, state_size
from opsagent_tools.sglang.values import Values
from opsagent_tools.sglang.weights import Shards, weight_bytes


@dataclass(frozen=True)
class Case:
    """Everything but the flags. `memo` keeps weights by parallelism; it is never shared between cases."""

    config: Mapping[str, Any]
    spec: ModelSpec
    gpu: GpuFacts
    version: str
    rules: Arithmetic
    remark: str
    env: Mapping[str, str]
    free_gib: float | None
    checkpoint: CheckpointFacts | None = None
    draft_config: Mapping[str, Any] | None = None
    calibration: Calibration = NO_CALIBRATION
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a launch will not start: the id, the taxonomy's cause, SGLang's words and what resolves it."""

    failure: Failure
    cause: str
    words: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The prediction for one set of arguments. `budget` is None when nothing could be computed."""

    settings: Settings
    failed: Failed | None
    budget: Budget | None = None
    draft: Draft = NO_DRAFT
    after: After = NO_AFTER
    parts: Mapping[str, int] = field(default_factory=dict)


def make_case(
    config: Mapping[str, Any],
    *,
    gpus: GpuFacts,
    sglang: str,
    env: Mapping[str, str],
    free_gib: float | None = None,
    checkpoint: CheckpointFacts | None = None,
    draft_config: Mapping[str, Any] | None = None,
    calibration: Calibration = NO_CALIBRATION,
) -> Case:
    """Read the model and pick the version's rules; raises InputError when config.json is not a model's."""
    rules, remark = nearest(sglang)
    spec = read_spec(config)
    return Case(config, spec, gpus, sglang, rules, remark, dict(env), free_gib, checkpoint, draft_config, calibration)


def shards_of(spec: ModelSpec, settings: Settings) -> Shards:
    """By what this launch divides each kind of tensor (layers/dp_attention.py, models/*.py)."""
    tp, atp = settings.tp, settings.atp
    ep = max(1, min(settings.ep, tp))
    return Shards(
        tp=tp,
        atp=atp,
        dense=1 if settings.moe_dense_tp == 1 else tp,
        moe_tp=max(1, tp // ep),
        moe_ep=ep,
        redundant=settings.redundant_experts,
        shared=1 if settings.a2a in A2A_BACKENDS else tp,
        embed=atp if settings.dp > 1 else tp,
        head=atp if settings.dp_lm_head else tp,
        vision=1 if settings.mm_encoder_dp else atp,
        pp=settings.pp,
    )


def quant_of(case: Case, values: Values) -> Quant:
    flag = values.get("quantization")
    return read_quant(case.spec.quantization, str(flag) if flag else None)


def assess(case: Case, values: Values, *, free_shift: float = 0.0, weight_shift: float = 0.0) -> Assessment:
    """Predict one launch. `values` are the arguments given (by destination); the shifts, in GiB, are for intervals."""
    settings = resolve(values, case.spec, case.gpu, case.rules, case.env)
    spec = case.spec
    try:
        weights, parts, draft, state = _sizes(case, values, settings)
    except Indivisible as error:
        words = str(error)
        return Assessment(
            settings, Failed("arg-rejected", "tp-size-not-divisible", words, "--tp with a divisor of the heads")
        )
    except ZeroDivisionError:
        return Assessment(settings, Failed("arg-rejected", "invalid-flag-value", "a size of zero", ""))
    free = free_of(case, settings)
    budget = make_budget(
        spec,
        settings,
        case.rules,
        free=int((free.gib + free_shift) * GIB),
        weights=weights + int((weight_shift + case.calibration.weights_gib) * GIB),
        draft_weights=draft.weights,
        draft_cell=draft.cell,
        draft_layers=draft.layers,
        state=state,
        stream_pool=STREAM_POOL,
        extra_loss=int(case.calibration.loss_gib * GIB),
    )
    after = after_pools(spec, settings, case.rules, case.gpu, budget, draft, case.calibration)
    return Assessment(settings, None, budget, draft, after, parts)


def _sizes(case: Case, values: Values, settings: Settings) -> tuple[int, Mapping[str, int], Draft, StateSize | None]:
    """Weights, their parts, the draft and the state of one slot; remembered by what they depend on."""
    key = (
        settings.tp,
        settings.pp,
        settings.dp,
        settings.ep,
        settings.moe_dense_tp,
        settings.dp_lm_head,
        settings.a2a,
        settings.redundant_experts,
        settings.mm_encoder_dp,
        settings.language_only,
        settings.spec,
        settings.kv_dtype,
        settings.ssm_dtype,
        settings.conv_dtype,
        settings.dtype,
        settings.moe_runner,
        values.get("quantization"),
        values.get("speculative_draft_model_path"),
    )
    if key not in case.memo:
        shards, quant = shards_of(case.spec, settings), quant_of(case, values)
        parts = weight_bytes(case.spec, quant, shards, language_only=settings.language_only)
        if case.checkpoint is not None:
            whole = weight_bytes(case.spec, quant, Shards(fuse_shared=False), language_only=settings.language_only)
            parts = checkpoint_weights(case.checkpoint, parts, whole)
        other = read_spec(case.draft_config) if case.draft_config else None
        draft = make_draft(case.spec, settings, quant, shards, other)
        state = state_size(case.spec, settings.atp, ssm_dtype=settings.ssm_dtype, conv_dtype=settings.conv_dtype)
        case.memo[key] = (parts["total"], parts, draft, state)
    found: tuple[int, Mapping[str, int], Draft, StateSize | None] = case.memo[key]
    return found


def free_of(case: Case, settings: Settings) -> FreeMemory:
    """Free memory at load begin: given, or estimated and corrected by what launches on this host logged."""
    found = free_memory(case.gpu, settings.tp * settings.pp, case.free_gib)
    learned = case.calibration
    if case.free_gib is not None or not learned.launches:
        return found
    centre, narrow = found.gib + learned.free_gib, 0.3
    return FreeMemory(
        centre,
        centre - narrow * (found.gib - found.low),
        centre + narrow * (found.high - found.gib),
        f"{found.basis}, {learned.text()}",
    )
