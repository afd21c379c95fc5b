"""What SGLang keeps free when it chooses --mem-fraction-static itself, and the fraction that follows."""

from __future__ import annotations

from opsagent_tools.sglang.arithmetic import Arithmetic
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.values import Values, integer, is_multimodal


def reserve_mib(
    values: Values,
    spec: ModelSpec,
    gpu: GpuFacts,
    rules: Arithmetic,
    chunked: int,
    graph_bs: int,
    piecewise: tuple[int, ...],
    *,
    dp: int,
) -> float:
    """What SGLang keeps free for activations and graphs when it chooses the fraction itself, MiB (server_args.py:1440).

    `dp` is 0 without --enable-dp-attention. Up to 0.5.11 it may be 1: DP attention of one group is dropped only later.
    """
    tokens = chunked if chunked > 0 else integer(values, "max_prefill_tokens", 16384)
    reserve = 512 + max(tokens, 2048) * 1.5
    deepep = rules.breakable and values.get("moe_a2a_backend") == "deepep"
    if not (rules.breakable and values.get("disable_cuda_graph")):
        reserve += graph_bs * 2
    reserve += integer(values, "tp_size", 1) * integer(values, "pp_size", 1) / 8 * 1024
    if dp:
        reserve += graph_bs * dp * (4.5 if graph_bs > 300 else 3)
    if piecewise:
        reserve += (
            rules.piecewise_mla_mib if spec.mla is not None and not rules.piecewise_opt_in else len(piecewise) * 8
        )
        reserve += 1024 if deepep else 0
    if gpu.total_mib > 60 * 1024:
        reserve = max(reserve, rules.floor_mib)
    if deepep and not values.get("disable_cuda_graph"):
        reserve += 2048
    algorithm = values.get("speculative_algorithm")
    if algorithm == "STANDALONE":
        reserve += rules.standalone_reserve_mib
    elif algorithm is not None and algorithm != "NGRAM":
        reserve += rules.spec_reserve_mib
    return reserve


def mem_fraction(values: Values, spec: ModelSpec, gpu: GpuFacts, rules: Arithmetic, reserve: float) -> float:
    """--mem-fraction-static, or SGLang's default: a fraction of the memory that is free before loading."""
    given = values.get("mem_fraction_static")
    if given is not None:
        return float(given)
    if gpu.total_mib <= 0:
        return rules.fraction_unknown
    fraction = round((gpu.total_mib - reserve) / gpu.total_mib, 3)
    vision = spec.vision
    if vision is None or not is_multimodal(values, spec) or values.get("language_only"):
        return fraction
    layers = vision.num_hidden_layers if vision.num_hidden_layers is not None else 24
    hidden = int((spec.raw.get("vision_config") or {}).get("hidden_size") or 1024)
    complexity = layers * hidden**2 / (24 * 1024**2)
    return float(fraction * (0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))))
