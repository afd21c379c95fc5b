"""Which CUDA graphs SGLang captures: batch sizes of decoding, token counts of prefill."""

from __future__ import annotations

from opsagent_tools.sglang.arithmetic import Arithmetic
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.values import Values, integer, is_multimodal

GRAPHLESS_BACKENDS = ("torch_native", "flex_attention")
"""Attention backends that switch CUDA graphs off (server_args.py:2553)."""
PIECEWISE_OFF = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "Qwen3NextForCausalLM",
        "GlmMoeDsaForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "LLaDAModelLM",
    }
)
BREAKABLE_VISION = frozenset(
    {
        "MiniMaxM3SparseForConditionalGeneration",
        "Cohere2VisionForConditionalGeneration",
        "Glm5NextForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "PaddleOCRVLForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "MuseGlimmerForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "MiniMaxM3SparseForCausalLM",
    }
)
"""Models with vision that keep their prefill graphs (0.5.23, configs/model_config.py:2501)."""
BREAKABLE_OFF = frozenset({"DeepseekV4ForCausalLM", "KimiLinearForCausalLM"})


def decode_graphs(values: Values, rules: Arithmetic) -> bool:
    """Whether decoding runs in CUDA graphs."""
    graphless = not rules.breakable and values.get("attention_backend") in GRAPHLESS_BACKENDS
    return not values.get("disable_cuda_graph") and not graphless


def graph_sizes(values: Values, largest: int, rules: Arithmetic) -> tuple[int, ...]:
    """Batch sizes of the decode graphs before they are cut to the running requests (server_args.py:1497)."""
    given = values.get("cuda_graph_bs")
    if given:
        return tuple(sorted(int(size) for size in given))
    top = integer(values, "cuda_graph_max_bs", largest)
    if (
        rules.clamp_graphs_to_requests
        and values.get("cuda_graph_max_bs") is None
        and values.get("max_running_requests")
    ):
        top = min(top, int(values["max_running_requests"]))
    if values.get("disable_cuda_graph_padding"):
        return tuple(range(1, top + 1))
    if values.get("speculative_algorithm") is None:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, top + 1, 32)]
    else:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, top + 1, 16)]
    kept = [size for size in sizes if size <= top]
    return tuple(kept if top in kept else [*kept, top])


def prefill_graph_tokens(
    values: Values, spec: ModelSpec, rules: Arithmetic, chunked: int, *, dp_attention: bool, pp: int
) -> tuple[int, ...]:
    """Token counts of the prefill graphs, empty when something switches them off.

    Piecewise graphs up to 0.5.11 (`_handle_piecewise_cuda_graph`), breakable ones in 0.5.23 (`cuda_graph_hook.py`).
    """
    off = _breakable_off(values, spec, pp) if rules.breakable else _piecewise_off(values, spec, rules, dp_attention, pp)
    if off:
        return ()
    cap = 8192 if rules.breakable else 2048
    top = chunked if spec.mla is None else (min(cap, chunked) if rules.breakable else cap)
    if values.get("max_total_tokens") is not None:
        top = min(top, int(values["max_total_tokens"]))
    top = integer(values, "piecewise_cuda_graph_max_tokens", top)
    sizes = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    sizes += [*range(1280, 4097, 256), *range(4608, top + 1, 512)]
    return tuple(size for size in sizes if size <= top)


def _piecewise_off(values: Values, spec: ModelSpec, rules: Arithmetic, dp_attention: bool, pp: int) -> bool:
    if rules.piecewise_opt_in:
        return not values.get("enable_piecewise_cuda_graph")
    if values.get("enforce_piecewise_cuda_graph"):
        return False
    return (
        (values.get("speculative_algorithm") is not None and not rules.piecewise_with_spec)
        or bool(values.get("disable_piecewise_cuda_graph"))
        or spec.architecture in PIECEWISE_OFF
        or (spec.mla is not None and spec.mla.index_heads > 0)
        or dp_attention
        or pp > 1
        or is_multimodal(values, spec)
        or str(values.get("moe_a2a_backend") or "none") != "none"
        or any(values.get(name) for name in PIECEWISE_SWITCHES)
        or float(values.get("cpu_offload_gb") or 0) > 0
        or str(values.get("disaggregation_mode") or "null") != "null"
        or integer(values, "attn_cp_size", 1) > 1
        or "gguf" in (values.get("quantization"), values.get("load_format"))
    )


def _breakable_off(values: Values, spec: ModelSpec, pp: int) -> bool:
    """`apply_cuda_graph_compatibility`: a backend that is named is taken whatever it is, the default one gives way."""
    backend = values.get("cuda_graph_backend_prefill")
    if backend is not None:
        return bool(backend == "disabled")
    return (
        bool(values.get("disable_cuda_graph") or values.get("disable_prefill_cuda_graph"))
        or str(values.get("disaggregation_mode") or "null") == "decode"
        or pp > 1
        or spec.architecture in BREAKABLE_OFF
        or bool((spec.raw.get("linear_attn_config") or {}).get("kda_layers"))
        or integer(values, "attn_cp_size", 1) > 1
        or integer(values, "dcp_size", 1) > 1
        or bool(values.get("enable_two_batch_overlap"))
        or str(values.get("moe_a2a_backend") or "none") not in ("none", "deepep", "megamoe", "flashinfer")
        or (is_multimodal(values, spec) and spec.architecture not in BREAKABLE_VISION)
    )


PIECEWISE_SWITCHES = (
    "enable_torch_compile",
    "lora_paths",
    "enable_lora",
    "dllm_algorithm",
    "enable_hierarchical_cache",
    "enable_deterministic_inference",
    "enable_symm_mem",
    "enable_eplb",
    "expert_distribution_recorder_mode",
    "debug_cuda_graph",
)
