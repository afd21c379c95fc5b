"""What comes after the pools: workspaces, the draft model and CUDA graphs. SGLang has no formula for graphs; this is
an estimate.

Fitted on launches of 0.5.11 on H200 and public logs (docs/planner.md); it decides only whether a launch dies in
graph capture, and
says how much memory will be spare.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsagent_tools.sglang.allocator import GIB
from opsagent_tools.sglang.arithmetic import Arithmetic
from opsagent_tools.sglang.budget import Budget
from opsagent_tools.sglang.calibration import Calibration
from opsagent_tools.sglang.draft import Draft
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.settings import Settings

CUBLAS = 0.09
"""GiB between "Memory pool end" and graph capture on one GPU: cuBLAS and small workspaces."""
FUSION = 3.54
"""GiB of FlashInfer's all-reduce fusion workspaces (2x H200, a few large granules); SGLang goes without when they
do not fit.
"""
FLASHINFER_WORKSPACE = {"flashinfer": 0.375}


@dataclass(frozen=True, slots=True)
class After:
    """GiB after the target's pools."""

    workspace: float = 0.0
    graphs: float = 0.0
    piecewise: float = 0.0
    graphs_left: float = 0.0
    draft_load: float = 0.0
    draft_pool: float = 0.0
    lowest: float = 0.0
    """Least free memory between the pools and readiness."""
    end: float = 0.0


NO_AFTER = After()


def after_pools(
    spec: ModelSpec,
    settings: Settings,
    rules: Arithmetic,
    gpu: GpuFacts,
    budget: Budget,
    draft: Draft,
    calibration: Calibration,
) -> After:
    """Free memory after each step that follows the pools."""
    workspace = CUBLAS + FLASHINFER_WORKSPACE.get(settings.attention_backend, 0.0)
    if settings.allreduce_fusion and budget.pool_end / GIB - workspace >= FUSION:
        workspace += FUSION
    graphs = decode_graphs_gib(spec, settings, budget.running) + calibration.graphs_gib if settings.graphs else 0.0
    piecewise = 0.022 * len(settings.piecewise_tokens) if settings.piecewise_tokens else 0.0
    start = budget.pool_end / GIB - workspace
    left = start - graphs - piecewise
    loading = left - (0.0 if rules.draft_first else draft.weights / GIB)
    resident = 0.0 if rules.draft_first else draft.resident / GIB
    pool = left - resident - (0.0 if rules.draft_first else budget.draft_kv_bytes / GIB)
    end = pool - draft_graphs_gib(spec, settings, budget.running) if draft.layers and settings.graphs else pool
    return After(workspace, graphs, piecewise, left, loading, pool, min(start, left, loading, pool, end), end)


def decode_graphs_gib(spec: ModelSpec, settings: Settings, running: int) -> float:
    """Decode graphs: a little per size and the logits of the largest batch; verification of hybrid models takes more."""
    sizes = [size for size in settings.graph_bs if size <= max(running, 1)]
    if not sizes:
        return 0.0
    if settings.spec is None:
        return 0.03 + 0.01 * len(sizes) + 0.5 * max(sizes) * spec.vocab * 4 / GIB
    base = 0.25 if spec.is_hybrid else 0.05
    return base + 0.01 * len(sizes) + 4 * logits_gib(spec, settings, max(sizes))


def logits_gib(spec: ModelSpec, settings: Settings, batch: int) -> float:
    """Float32 logits of one batch, every draft token counted."""
    tokens = settings.spec.draft_tokens if settings.spec else 1
    return batch * tokens * spec.vocab * 4 / GIB


def draft_graphs_gib(spec: ModelSpec, settings: Settings, running: int) -> float:
    """Graphs of drafting (more than one step) and of its extension."""
    sizes = [size for size in settings.graph_bs if size <= max(running, 1)]
    if not sizes or settings.spec is None:
        return 0.0
    logits = logits_gib(spec, settings, max(sizes))
    return 0.05 + 5 * logits + (3 * logits if settings.spec.steps > 1 else 0.0)
