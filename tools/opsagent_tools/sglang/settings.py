"""SGLang's server arguments after its own resolution, as far as they move memory or limits.

The order is ServerArgs.__post_init__'s (server_args.py of 0.5.11): capacity defaults by the card's total memory,
then the memory
fraction, then what the architecture and speculation change. Refusals are in `rules.py` and `refusals.py`, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsagent_tools.sglang.arithmetic import Arithmetic
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.modelspec import ModelSpec

Values = Mapping[str, Any]
"""Server arguments that were given, by argparse destination (`max_running_requests`)."""

A2A_BACKENDS = frozenset({"deepep", "mooncake", "nixl", "mori", "ascend_fuseep", "flashinfer"})
SPEC_MODEL_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "STANDALONE", "NEXTN"})
PIECEWISE_OFF = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "Qwen3NextForCausalLM",
        "GlmMoeDsaForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "LLaDAModelLM",
    }
)
MM_OFF_BY_DEFAULT = frozenset(
    {"Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration", "Step3VLForConditionalGeneration"}
)
RADIX_OFF = frozenset({"KimiLinearForCausalLM", "BailingMoeV2_5ForCausalLM"})
FUSION_ARCHITECTURES = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "GptOssForCausalLM",
        "GlmMoeDsaForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "KimiK25ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
    }
)


@dataclass(frozen=True, slots=True)
class Speculation:
    """Resolved speculative decoding: `draft_tokens` is what verification holds per request."""

    algorithm: str
    steps: int
    topk: int
    draft_tokens: int


@dataclass(frozen=True)
class Settings:
    """What the budget needs. Sizes in tokens, fractions of free memory, MiB where named so."""

    tp: int
    pp: int
    dp: int
    """Data parallel groups of attention (1 without --enable-dp-attention)."""
    ep: int
    moe_dense_tp: int | None
    dp_lm_head: bool
    a2a: str
    redundant_experts: int
    mem_fraction: float
    fraction_given: bool
    reserve_mib: float
    chunked_prefill: int
    graph_bs: tuple[int, ...]
    graphs: bool
    piecewise_tokens: tuple[int, ...]
    page_size: int
    max_running: int | None
    """After the reset to 48 under speculation."""
    running_given: bool
    max_tokens: int | None
    context: int
    kv_dtype: str
    spec: Speculation | None
    strategy: str
    radix: bool
    overlap: bool
    mamba_ratio: float
    mamba_slots: int | None
    ssm_dtype: str
    conv_dtype: str
    swa_ratio: float
    swa_memory: bool
    language_only: bool
    mm_encoder_dp: bool
    attention_backend: str
    allreduce_fusion: bool
    moe_runner: str
    draft_path: str
    dtype: str

    @property
    def atp(self) -> int:
        return max(1, self.tp // self.dp)

    def slots_per_request(self, rules: Arithmetic) -> int:
        """State slots that SGLang keeps per running request (`_calculate_mamba_ratio`)."""
        if not self.radix:
            return 1
        if self.strategy == "extra_buffer_lazy":
            return 4
        if self.strategy != "extra_buffer":
            return 3
        if rules.extra_buffer_fixed and self.spec is not None:
            return 3 + rules.extra_buffer_fixed
        if rules.extra_buffer_fixed:
            return 5
        return 5 if self.overlap else 4


def resolve(values: Values, spec: ModelSpec, gpu: GpuFacts, rules: Arithmetic, env: Mapping[str, str]) -> Settings:
    """The arguments that SGLang ends up with. `values` are those given; unknown ones are ignored here."""
    tp, pp = integer(values, "tp_size", 1), integer(values, "pp_size", 1)
    dp_attention = bool(values.get("enable_dp_attention")) and integer(values, "dp_size", 1) > 1
    dp = integer(values, "dp_size", 1) if dp_attention else 1
    tier = (
        next((t for t in rules.tiers if gpu.total_mib < t.below_mib), rules.unknown)
        if gpu.total_mib > 0
        else rules.unknown
    )
    chunked = integer(values, "chunked_prefill_size", tier.chunked_prefill)
    graph_bs = graph_sizes(values, tier.graph_bs if tp < 4 else tier.graph_bs_tp4, rules)
    piecewise = piecewise_tokens(values, spec, rules, chunked, dp_attention=dp_attention, pp=pp)
    reserve = reserve_mib(values, spec, gpu, rules, chunked, max(graph_bs, default=0), piecewise, dp=dp)
    fraction = mem_fraction(values, spec, gpu, rules, reserve)
    speculation = read_speculation(values, spec, rules)
    strategy, radix, overlap = scheduling(values, spec, rules, env, speculation, pp=pp)
    running = values.get("max_running_requests")
    page = page_size(values, spec, gpu, strategy, radix)
    if dp_attention:
        chunked //= dp
    a2a = str(values.get("moe_a2a_backend") or "none")
    return Settings(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=tp if a2a in A2A_BACKENDS else integer(values, "ep_size", 1),
        moe_dense_tp=values.get("moe_dense_tp_size"),
        dp_lm_head=bool(values.get("enable_dp_lm_head")) and dp_attention,
        a2a=a2a,
        redundant_experts=integer(values, "ep_num_redundant_experts", 0),
        mem_fraction=fraction,
        fraction_given=values.get("mem_fraction_static") is not None,
        reserve_mib=reserve,
        chunked_prefill=chunked,
        graph_bs=graph_bs,
        graphs=not values.get("disable_cuda_graph"),
        piecewise_tokens=piecewise,
        page_size=page,
        max_running=int(running) if running is not None else (48 if speculation else None),
        running_given=running is not None,
        max_tokens=int(values["max_total_tokens"]) if values.get("max_total_tokens") is not None else None,
        context=integer(values, "context_length", spec.context),
        kv_dtype=kv_dtype(values, spec, gpu),
        spec=speculation,
        strategy=strategy,
        radix=radix,
        overlap=overlap,
        mamba_ratio=float(values.get("mamba_full_memory_ratio", 0.9)),
        mamba_slots=int(values["max_mamba_cache_size"]) if values.get("max_mamba_cache_size") is not None else None,
        ssm_dtype=str(values.get("mamba_ssm_dtype") or env.get("SGLANG_MAMBA_SSM_DTYPE", "")),
        conv_dtype=env.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16"),
        swa_ratio=float(values.get("swa_full_tokens_ratio", 0.8)),
        swa_memory=spec.architecture in rules.swa and not values.get("disable_hybrid_swa_memory"),
        language_only=bool(values.get("language_only")),
        mm_encoder_dp=bool(values.get("mm_enable_dp_encoder")),
        attention_backend=str(values.get("attention_backend") or ""),
        allreduce_fusion=_fusion(values, spec, gpu, tp, dp_attention, a2a),
        moe_runner=str(values.get("moe_runner_backend") or "auto"),
        draft_path=str(values.get("speculative_draft_model_path") or ""),
        dtype=str(values.get("dtype") or "auto"),
    )


def integer(values: Values, name: str, default: int) -> int:
    value = values.get(name)
    return default if value is None else int(value)


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


def is_multimodal(values: Values, spec: ModelSpec) -> bool:
    """SGLang's `ModelConfig.is_multimodal`: three architectures are text-only unless --enable-multimodal."""
    enabled = values.get("enable_multimodal")
    if enabled is None:
        enabled = spec.architecture not in MM_OFF_BY_DEFAULT
    return bool(enabled) and (spec.multimodal or spec.encoder_subconfig)


def piecewise_tokens(
    values: Values, spec: ModelSpec, rules: Arithmetic, chunked: int, *, dp_attention: bool, pp: int
) -> tuple[int, ...]:
    """Token counts of the piecewise prefill graphs, empty when something switches them off (server_args.py:1194)."""
    off = (
        not rules.piecewise
        or bool(values.get("disable_piecewise_cuda_graph"))
        or spec.architecture in PIECEWISE_OFF
        or (spec.mla is not None and spec.mla.index_heads > 0)
        or dp_attention
        or pp > 1
        or (is_multimodal(values, spec) and not rules.piecewise_vlm)
        or str(values.get("moe_a2a_backend") or "none") != "none"
        or any(values.get(name) for name in PIECEWISE_SWITCHES)
        or float(values.get("cpu_offload_gb") or 0) > 0
        or str(values.get("disaggregation_mode") or "null") != "null"
        or integer(values, "attn_cp_size", 1) > 1
        or values.get("quantization") == "gguf"
        or values.get("load_format") == "gguf"
    )
    if off and not values.get("enforce_piecewise_cuda_graph"):
        return ()
    top = chunked if spec.mla is None else 2048
    if values.get("max_total_tokens") is not None:
        top = min(top, int(values["max_total_tokens"]))
    top = integer(values, "piecewise_cuda_graph_max_tokens", top)
    sizes = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    sizes += [*range(1280, 4097, 256), *range(4608, top + 1, 512)]
    return tuple(size for size in sizes if size <= top)


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
    """What SGLang keeps free for activations and graphs when it chooses the fraction itself, MiB (server_args.py:1440)."""
    tokens = chunked if chunked > 0 else integer(values, "max_prefill_tokens", 16384)
    reserve = 512 + max(tokens, 2048) * 1.5
    if not (rules.draft_first and values.get("disable_cuda_graph")):
        reserve += graph_bs * 2
    reserve += integer(values, "tp_size", 1) * integer(values, "pp_size", 1) / 8 * 1024
    if dp > 1:
        reserve += graph_bs * dp * (4.5 if graph_bs > 300 else 3)
    if piecewise:
        reserve += len(piecewise) * 8 if spec.mla is None else rules.piecewise_mla_mib
    if gpu.total_mib > 60 * 1024:
        reserve = max(reserve, rules.floor_mib)
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


def read_speculation(values: Values, spec: ModelSpec, rules: Arithmetic) -> Speculation | None:
    """Steps, topk and draft tokens after SGLang's own choice (server_args.py:3521, `auto_choose_speculative_params`)."""
    algorithm = values.get("speculative_algorithm")
    if algorithm is None:
        return None
    name = "EAGLE" if algorithm == "NEXTN" else str(algorithm)
    steps, topk, tokens = (values.get(f"speculative_{key}") for key in ("num_steps", "eagle_topk", "num_draft_tokens"))
    if name == "NGRAM":
        return Speculation(name, 0, integer(values, "speculative_ngram_max_bfs_breadth", 10), int(tokens or 12))
    if name == "DFLASH":
        return Speculation(name, 1, 1, int(tokens or values.get("speculative_dflash_block_size") or 16))
    if steps is None and topk is None and tokens is None:
        wide = spec.architecture in ("LlamaForCausalLM", "Grok1ForCausalLM") and name != "STANDALONE"
        return Speculation(name, *((5, 4, 8) if wide else (3, 1, 4)))
    steps, topk = int(steps or 1), int(topk or 1)
    return Speculation(name, steps, topk, steps + 1 if topk == 1 else int(tokens or steps + 1))


def scheduling(
    values: Values,
    spec: ModelSpec,
    rules: Arithmetic,
    env: Mapping[str, str],
    speculation: Speculation | None,
    *,
    pp: int,
) -> tuple[str, bool, bool]:
    """State strategy, whether prefixes are cached, and whether scheduling overlaps with the GPU."""
    strategy = str(values.get("mamba_radix_cache_strategy") or values.get("mamba_scheduler_strategy") or "auto")
    radix = not values.get("disable_radix_cache") and spec.architecture not in RADIX_OFF
    if str(values.get("disaggregation_mode") or "null") == "decode":
        radix = False
    overlap = not values.get("disable_overlap_schedule")
    if strategy == "auto":
        able = spec.is_hybrid and spec.architecture not in rules.no_extra_buffer and radix
        strategy = "extra_buffer" if rules.extra_buffer_default and able and overlap else "no_buffer"
    if spec.is_hybrid and strategy == "no_buffer" and speculation is not None and not rules.no_buffer_refuses_spec:
        radix = False
    if spec.is_hybrid and strategy == "no_buffer" and radix and speculation is None:
        overlap = False
    if speculation is not None:
        v2 = env.get("SGLANG_ENABLE_SPEC_V2", str(rules.spec_v2)).lower() in ("1", "true", "yes", "on")
        overlap = overlap and v2 and speculation.topk <= 1 and speculation.algorithm not in ("NGRAM", "DFLASH")
    return strategy, radix, overlap and pp == 1


def page_size(values: Values, spec: ModelSpec, gpu: GpuFacts, strategy: str, radix: bool) -> int:
    """Tokens per page after what the attention backend and the state strategy demand."""
    page = integer(values, "page_size", 1)
    backends = {str(values.get(f"{kind}attention_backend") or "") for kind in ("", "decode_", "prefill_")}
    if spec.mla is not None and spec.mla.index_heads:
        page = 64
    if spec.is_hybrid and strategy == "no_buffer" and radix:
        page = 1
    if "flashmla" in backends:
        page = 64
    if "cutlass_mla" in backends:
        page = 128
    sm = gpu.sm or (0, 0)
    default_mla = not backends - {""} and sm[0] == 10 and spec.architecture == "DeepseekV3ForCausalLM"
    if ("trtllm_mla" in backends or default_mla) and page not in (32, 64):
        page = 64
    default_mha = not backends - {""} and sm[0] == 10 and spec.mla is None and not spec.is_hybrid
    if ("trtllm_mha" in backends or default_mha) and page not in (16, 32, 64):
        page = 64
    return page


def kv_dtype(values: Values, spec: ModelSpec, gpu: GpuFacts) -> str:
    """`auto` becomes the checkpoint's own fp8 KV, or the model's dtype; sparse MLA picks by the card."""
    given = str(values.get("kv_cache_dtype") or "auto")
    if given != "auto":
        return given
    if spec.mla is not None and spec.mla.index_heads:
        return "fp8_e4m3" if (gpu.sm or (9, 0))[0] >= 10 else "bfloat16"
    algo = spec.quantization.get("kv_cache_quant_algo") or (spec.quantization.get("quantization") or {}).get(
        "kv_cache_quant_algo"
    )
    return "fp8_e4m3" if str(algo or "").upper() == "FP8" else "auto"


def _fusion(values: Values, spec: ModelSpec, gpu: GpuFacts, tp: int, dp_attention: bool, a2a: str) -> bool:
    """FlashInfer's all-reduce fusion and its workspace: by itself on SM90/SM100 for some families (server_args.py:2320)."""
    if values.get("enforce_disable_flashinfer_allreduce_fusion"):
        return False
    if values.get("enable_flashinfer_allreduce_fusion"):
        return True
    sm = (gpu.sm or (0, 0))[0]
    h20 = "H20" in gpu.name and "H200" not in gpu.name
    return (
        spec.architecture in FUSION_ARCHITECTURES
        and sm in (9, 10)
        and tp > 1
        and not dp_attention
        and a2a == "none"
        and not h20
    )
