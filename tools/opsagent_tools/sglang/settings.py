"""SGLang's server arguments after its own resolution, as far as they move memory or limits.

The order is ServerArgs.__post_init__'s (server_args.py of 0.5.11): capacity defaults by the card's total memory, then the
memory fraction, then what the architecture and speculation change. Refusals are in `argument_rules.py` and `refusals.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from opsagent_tools.sglang.arithmetic import Arithmetic
from opsagent_tools.sglang.attention import default_attention
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.graphs import decode_graphs, graph_sizes, prefill_graph_tokens
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.reserve import mem_fraction, reserve_mib
from opsagent_tools.sglang.values import Values, integer

A2A_BACKENDS = frozenset({"deepep", "mooncake", "nixl", "mori", "ascend_fuseep", "flashinfer"})
PAGED_HYBRIDS = frozenset(
    {"Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"}
)
"""Hybrid models for which trtllm_mha is the default on SM100 (server_args.py of 0.5.10:1977)."""
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


class Capacity(NamedTuple):
    """What SGLang derives from the card's total memory before it looks at the model (`_handle_gpu_memory_settings`)."""

    chunked_prefill: int
    graph_bs: tuple[int, ...]
    prefill_graphs: tuple[int, ...]
    reserve_mib: float


def _capacity(values: Values, spec: ModelSpec, gpu: GpuFacts, rules: Arithmetic) -> Capacity:
    asked_dp, pp = bool(values.get("enable_dp_attention")), integer(values, "pp_size", 1)
    known = (t for t in rules.tiers if gpu.total_mib < t.below_mib)
    tier = next(known, rules.unknown) if gpu.total_mib > 0 else rules.unknown
    chunked = integer(values, "chunked_prefill_size", tier.chunked_prefill)
    graph_bs = graph_sizes(values, tier.graph_bs if integer(values, "tp_size", 1) < 4 else tier.graph_bs_tp4, rules)
    prefill = prefill_graph_tokens(values, spec, rules, chunked, dp_attention=asked_dp, pp=pp)
    dp = integer(values, "dp_size", 1) if asked_dp else 0
    if dp == 1 and rules.breakable:
        dp = 0
    reserve = reserve_mib(values, spec, gpu, rules, chunked, max(graph_bs, default=0), prefill, dp=dp)
    return Capacity(chunked, graph_bs, prefill, reserve)


def resolve(values: Values, spec: ModelSpec, gpu: GpuFacts, rules: Arithmetic, env: Mapping[str, str]) -> Settings:
    """The arguments that SGLang ends up with. `values` are those given; unknown ones are ignored here."""
    tp, pp = integer(values, "tp_size", 1), integer(values, "pp_size", 1)
    dp_attention = bool(values.get("enable_dp_attention")) and integer(values, "dp_size", 1) > 1
    dp = integer(values, "dp_size", 1) if dp_attention else 1
    capacity = _capacity(values, spec, gpu, rules)
    speculation = read_speculation(values, spec, rules)
    strategy, radix, overlap = scheduling(values, spec, rules, env, speculation, pp=pp)
    running = values.get("max_running_requests")
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
        mem_fraction=mem_fraction(values, spec, gpu, rules, capacity.reserve_mib),
        reserve_mib=capacity.reserve_mib,
        chunked_prefill=capacity.chunked_prefill // dp,
        graph_bs=capacity.graph_bs,
        graphs=decode_graphs(values, rules),
        piecewise_tokens=capacity.prefill_graphs,
        page_size=page_size(values, spec, gpu, strategy, radix, rules),
        max_running=int(running) if running is not None else (48 if speculation else None),
        running_given=running is not None,
        max_tokens=_optional(values, "max_total_tokens"),
        context=integer(values, "context_length", spec.context),
        kv_dtype=kv_dtype(values, spec, gpu),
        spec=speculation,
        strategy=strategy,
        radix=radix,
        overlap=overlap,
        mamba_ratio=float(values.get("mamba_full_memory_ratio", 0.9)),
        mamba_slots=_optional(values, "max_mamba_cache_size"),
        ssm_dtype=str(values.get("mamba_ssm_dtype") or env.get("SGLANG_MAMBA_SSM_DTYPE", "")),
        conv_dtype=env.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16"),
        swa_ratio=float(values.get("swa_full_tokens_ratio", 0.8)),
        swa_memory=spec.architecture in rules.swa and not values.get("disable_hybrid_swa_memory"),
        language_only=bool(values.get("language_only")),
        mm_encoder_dp=bool(values.get("mm_enable_dp_encoder")),
        attention_backend=str(values.get("attention_backend") or ""),
        allreduce_fusion=_fusion(values, spec, gpu, tp, dp_attention, a2a),
        moe_runner=str(values.get("moe_runner_backend") or "auto"),
        dtype=str(values.get("dtype") or "auto"),
    )


def _optional(values: Values, name: str) -> int | None:
    return None if values.get(name) is None else int(values[name])


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
    if rules.breakable:
        return strategy, radix, overlap and pp == 1
    if speculation is not None:
        v2 = env.get("SGLANG_ENABLE_SPEC_V2", str(rules.spec_v2)).lower() in ("1", "true", "yes", "on")
        overlap = overlap and v2 and speculation.topk <= 1 and speculation.algorithm not in ("NGRAM", "DFLASH")
    return strategy, radix, overlap and pp == 1


def page_size(values: Values, spec: ModelSpec, gpu: GpuFacts, strategy: str, radix: bool, rules: Arithmetic) -> int:
    """Tokens per page after what the attention backend and the state strategy demand."""
    page = integer(values, "page_size", 1)
    backends = {str(values.get(f"{kind}attention_backend") or "") for kind in ("", "decode_", "prefill_")}
    if spec.mla is not None and spec.mla.index_heads:
        page = 64
    if spec.is_hybrid and strategy == "no_buffer" and radix and rules.no_buffer_sets_page:
        page = 1
    if "flashmla" in backends:
        page = 64
    if "cutlass_mla" in backends:
        page = 128
    sm = gpu.sm or (0, 0)
    default_mla = not backends - {""} and sm[0] == 10 and spec.architecture == "DeepseekV3ForCausalLM"
    if ("trtllm_mla" in backends or default_mla) and page not in (32, 64):
        page = 64
    default_mha = not backends - {""} and default_attention(values, spec, gpu) == "trtllm_mha"
    if spec.is_hybrid:  # the state cache without snapshots needs pages of 1, so Triton stays the default there
        snapshots = strategy != "no_buffer" or not radix or values.get("speculative_algorithm") is not None
        default_mha = default_mha and spec.architecture in PAGED_HYBRIDS and snapshots and not rules.breakable
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
