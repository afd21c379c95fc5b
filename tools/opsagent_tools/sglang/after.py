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
FUSION = 3.63
"""GiB of FlashInfer's all-reduce fusion workspace (2x H200)."""
FLASHINFER_WORKSPACE = {"flashinfer": 0.375}


@dataclass(frozen=True, slots=True)
class After:
    """GiB after the target's pools."""

    workspace: float = 0.0
    graphs: float = 0.0
    piecewise: float = 0.0
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
    workspace = (
        CUBLAS
        + (FUSION if settings.allreduce_fusion else 0.0)
        + FLASHINFER_WORKSPACE.get(settings.attention_backend, 0.0)
    )
    graphs = decode_graphs_gib(spec, settings, budget.running) + calibration.graphs_gib if settings.graphs else 0.0
    piecewise = 0.025 * len(settings.piecewise_tokens) if settings.piecewise_tokens else 0.0
    start = budget.pool_end / GIB - workspace
    after_graphs = start - graphs - piecewise
    loading = after_graphs - (0.0 if rules.draft_first else draft.weights / GIB)
    with_draft = after_graphs - (draft.resident + budget.draft_kv_bytes) / GIB
    extend = 0.08 if draft.layers and settings.graphs else 0.0
    return After(
        workspace, graphs, piecewise, min(start, after_graphs, loading, with_draft - extend), with_draft - extend
    )


def decode_graphs_gib(spec: ModelSpec, settings: Settings, running: int) -> float:
    """Decode graphs: logits of the largest batch and a little per size."""
    sizes = [size for size in settings.graph_bs if size <= max(running, 1)]
    if not sizes:
        return 0.0
    tokens = settings.spec.draft_tokens if settings.spec else 1
    logits = max(sizes) * tokens * spec.vocab * 4 / max(1, settings.tp) / GIB
    return 0.03 + 0.008 * len(sizes) + logits
