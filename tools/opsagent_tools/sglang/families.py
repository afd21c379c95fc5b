"""What the model classes of SGLang add to a plain decoder, by architecture: biases, norms, gates, and where experts sit.

Data first, one row per architecture that differs from a Llama; the readers below turn config.json into layers, experts and
recurrent state. Source: models/*.py and configs/*.py of SGLang 0.5.11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsagent_tools.errors import InputError
from opsagent_tools.sglang.modelspec import GDN_ARCHITECTURES, Config, Layer, Linear, Mla, Moe, number


@dataclass(frozen=True, slots=True)
class Family:
    """How an architecture differs from Llama. `None` for a bias means: what config.json's `attention_bias` says."""

    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: str = ""
    norms: int = 2
    mlp_gated: bool = True
    sinks: bool = False
    tied: bool = False
    """Default of `tie_word_embeddings` when config.json does not say."""
    head_bytes: int = 0
    """Bytes of an element of the output head when the class casts it (0: the model's dtype)."""
    embed_sharded: bool = True
    """False when the embedding is a plain module that every GPU holds whole."""
    rope_tables: int = 1
    head_dim: int = 0
    """Default head width of the configuration class (0: hidden / heads)."""


FAMILIES: Mapping[str, Family] = {
    "Qwen2ForCausalLM": Family(qkv_bias=True, o_bias=False),
    "Qwen2MoeForCausalLM": Family(qkv_bias=True, o_bias=False),
    "Qwen2VLForConditionalGeneration": Family(qkv_bias=True, o_bias=False),
    "Qwen2_5_VLForConditionalGeneration": Family(qkv_bias=True, o_bias=False),
    "Qwen3ForCausalLM": Family(o_bias=False, qk_norm="head", head_dim=128),
    "Qwen3MoeForCausalLM": Family(o_bias=False, qk_norm="head"),
    "Qwen3VLForConditionalGeneration": Family(o_bias=False, qk_norm="head", head_dim=128),
    "Qwen3VLMoeForConditionalGeneration": Family(o_bias=False, qk_norm="head", head_dim=128),
    "Qwen3NextForCausalLM": Family(o_bias=False, qk_norm="head", head_dim=256),
    "Qwen3_5ForConditionalGeneration": Family(o_bias=False, qk_norm="head", head_dim=256),
    "Qwen3_5MoeForConditionalGeneration": Family(o_bias=False, qk_norm="head", head_dim=256),
    "GptOssForCausalLM": Family(qkv_bias=None, o_bias=None, sinks=True, head_dim=64),
    "GemmaForCausalLM": Family(tied=True, head_dim=256),
    "Gemma2ForCausalLM": Family(norms=4, tied=True, head_dim=256),
    "Gemma3ForCausalLM": Family(norms=4, qk_norm="head", tied=True, head_dim=256, embed_sharded=False, rope_tables=2),
    "Gemma3ForConditionalGeneration": Family(
        norms=4, qk_norm="head", tied=True, head_dim=256, embed_sharded=False, rope_tables=2
    ),
    "Gemma4ForCausalLM": Family(norms=4, qk_norm="head", tied=True, head_dim=256),
    "Gemma4ForConditionalGeneration": Family(norms=4, qk_norm="head", tied=True, head_dim=256),
    "Glm4ForCausalLM": Family(norms=4, o_bias=False),
    "Glm4MoeForCausalLM": Family(o_bias=False),
    "Olmo2ForCausalLM": Family(qk_norm="full"),
    "Olmo3ForCausalLM": Family(qk_norm="full"),
    "OlmoeForCausalLM": Family(qk_norm="full"),
    "MiniMaxM2ForCausalLM": Family(qk_norm="full"),
    "CohereForCausalLM": Family(norms=1, tied=True),
    "Cohere2ForCausalLM": Family(norms=1, tied=True),
    "NemotronHForCausalLM": Family(norms=1, mlp_gated=False),
    "NemotronForCausalLM": Family(mlp_gated=False),
    "FalconH1ForCausalLM": Family(qk_norm="head", head_bytes=4),
    "Exaone4ForCausalLM": Family(qk_norm="head"),
    "GPT2LMHeadModel": Family(mlp_gated=False, tied=True),
}


def read_layers(architecture: str, text: Config) -> tuple[Layer, ...]:
    """The kind of every decoder layer, in order."""
    pattern = text.get("hybrid_override_pattern")
    if architecture.startswith("NemotronH"):
        return _nemotron_layers(text, pattern if isinstance(pattern, str) else None)
    count = number(text, "num_hidden_layers", "n_layer", "n_layers")
    if not 0 < count < 1_000:
        raise InputError(f"num_hidden_layers is {count}", where="config.json")
    mixers = _mixers(architecture, text, count)
    return tuple(Layer(mixers[i], "moe" if _is_moe(architecture, text, i) else "dense") for i in range(count))


def _nemotron_layers(text: Config, pattern: str | None) -> tuple[Layer, ...]:
    """One block per layer: M mamba2, * attention, - feed-forward, E experts (configs/nemotron_h.py)."""
    letters = {
        "M": Layer("linear", "none"),
        "*": Layer("full", "none"),
        "-": Layer("none", "dense"),
        "E": Layer("none", "moe"),
    }
    names = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    if pattern is None:
        kinds = text.get("layers_block_type") or ()
        pattern = "".join(names.get(str(kind), "?") for kind in kinds)
    unknown = set(pattern) - set(letters)
    if unknown or not pattern:
        raise InputError(
            "hybrid_override_pattern is missing" if not pattern else f"hybrid_override_pattern has {sorted(unknown)}",
            where="config.json",
        )
    return tuple(letters[letter] for letter in pattern)


def _mixers(architecture: str, text: Config, count: int) -> list[str]:
    kinds = text.get("layer_types")
    named: Sequence[Any] = kinds if isinstance(kinds, Sequence) and not isinstance(kinds, str) else ()
    if architecture in GDN_ARCHITECTURES:
        if len(named) >= count:
            return ["linear" if str(kind) == "linear_attention" else "full" for kind in named[:count]]
        every = number(text, "full_attention_interval", default=4)
        return ["full" if (i + 1) % every == 0 else "linear" for i in range(count)]
    if architecture == "FalconH1ForCausalLM":
        return ["both"] * count
    if architecture == "GraniteMoeHybridForCausalLM":
        return ["linear" if str(kind) == "mamba" else "full" for kind in named[:count]] or ["full"] * count
    if architecture.startswith("Lfm2"):
        return ["full" if str(kind) == "full_attention" else "linear" for kind in named[:count]]
    if architecture == "KimiLinearForCausalLM":
        full = set((text.get("linear_attn_config") or {}).get("full_attn_layers") or ())
        return ["full" if i + 1 in full else "linear" for i in range(count)]
    if architecture == "BailingMoeV2_5ForCausalLM":
        group = number(text, "layer_group_size", default=1)
        return ["full" if (i + 1) % group == 0 or i >= count // group * group else "linear" for i in range(count)]
    if architecture == "Llama4ForConditionalGeneration":
        return ["full" if (i + 1) % 4 == 0 else "swa" for i in range(count)]
    if architecture.startswith("MiMoV2"):
        flags = text.get("hybrid_layer_pattern") or [0] * count
        return ["swa" if flags[i] == 1 else "full" for i in range(count)]
    if len(named) >= count:
        return ["swa" if str(kind) == "sliding_attention" else "full" for kind in named[:count]]
    return ["full"] * count


def _is_moe(architecture: str, text: Config, i: int) -> bool:
    experts = _expert_count(text)
    if experts <= 0:
        return False
    if architecture.startswith("Llama4"):
        layers = text.get("moe_layers")
        if isinstance(layers, Sequence):
            return i in layers
        step = number(text, "interleave_moe_layer_step", default=1)
        return step > 0 and (i + 1) % step == 0
    if "first_k_dense_replace" in text:
        every = number(text, "moe_layer_freq", default=1) if not isinstance(text.get("moe_layer_freq"), list) else 1
        return i >= number(text, "first_k_dense_replace", default=0) and i % max(every, 1) == 0
    flags = text.get("moe_layer_freq")
    if isinstance(flags, list) and i < len(flags):
        return bool(flags[i])
    if i in (text.get("mlp_only_layers") or ()):
        return False
    step = number(text, "decoder_sparse_step", default=1)
    return step > 0 and (i + 1) % step == 0


def _expert_count(text: Config) -> int:
    return number(text, "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", default=0)


def read_moe(architecture: str, text: Config) -> Moe | None:
    """Routed and shared experts, or None. Widths in elements."""
    experts = _expert_count(text)
    if experts <= 0:
        return None
    width = number(text, "moe_intermediate_size", "intermediate_size", "ffn_hidden_size")
    shared_count = number(text, "n_shared_experts", "num_shared_experts", default=0)
    names = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
    shared = number(text, *names, default=0)
    if not shared and shared_count:
        shared = shared_count * width
    if architecture.startswith("Llama4"):
        shared = width
    return Moe(
        experts=experts,
        width=width,
        top_k=number(text, "num_experts_per_tok", "moe_topk", "moe_k", default=1),
        shared=shared,
        shared_gate=architecture in GDN_ARCHITECTURES | {"Qwen2MoeForCausalLM"},
        fused_shared=shared_count if architecture == "DeepseekV3ForCausalLM" and experts == 256 else 0,
        bias=architecture == "GptOssForCausalLM",
        correction_bias=text.get("topk_method") == "noaux_tc"
        or architecture in {"Glm4MoeForCausalLM", "MiniMaxM2ForCausalLM", "KimiLinearForCausalLM"}
        or architecture.startswith("NemotronH"),
        gated=not architecture.startswith("NemotronH"),
        latent=number(text, "moe_latent_size", default=0),
    )


def read_mla(text: Config) -> Mla:
    return Mla(
        q_lora_rank=number(text, "q_lora_rank", default=0),
        kv_lora_rank=number(text, "kv_lora_rank"),
        nope=number(text, "qk_nope_head_dim"),
        rope=number(text, "qk_rope_head_dim"),
        v=number(text, "v_head_dim"),
        index_heads=number(text, "index_n_heads", default=0) if text.get("index_topk") else 0,
        index_dim=number(text, "index_head_dim", default=0) if text.get("index_topk") else 0,
    )


def read_linear(architecture: str, text: Config) -> Linear | None:
    """Recurrent layers and the state they keep, or None (configs/mamba_utils.py and the configuration classes)."""
    if architecture in GDN_ARCHITECTURES:
        heads = number(text, "linear_num_value_heads", default=32)
        v_dim = number(text, "linear_value_head_dim", default=128)
        return Linear(
            kind="gdn",
            inner=heads * v_dim,
            groups=number(text, "linear_num_key_heads", default=16),
            heads=heads,
            head_dim=v_dim,
            state=number(text, "linear_key_head_dim", default=128),
            kernel=number(text, "linear_conv_kernel_dim", default=4),
        )
    if architecture.startswith("NemotronH"):
        heads = number(text, "mamba_num_heads", default=128)
        width = number(text, "mamba_head_dim", default=64)
        return Linear(
            kind="mamba2",
            inner=heads * width,
            groups=number(text, "n_groups", "mamba_n_groups", default=8),
            heads=heads,
            head_dim=width,
            state=number(text, "ssm_state_size", "mamba_state_dim", default=128),
            kernel=number(text, "conv_kernel", "mamba_d_conv", default=4),
            conv_bias=bool(text.get("use_conv_bias", True)),
            proj_bias=bool(text.get("mamba_proj_bias", text.get("use_bias", False))),
        )
    if architecture in {"FalconH1ForCausalLM", "GraniteMoeHybridForCausalLM"}:
        return _mamba_of_hybrids(text)
    if architecture.startswith("Lfm2"):
        hidden = number(text, "hidden_size")
        return Linear("shortconv", hidden, 1, 1, hidden, 0, number(text, "conv_L_cache", default=3))
    if architecture == "KimiLinearForCausalLM":
        part = text.get("linear_attn_config") or {}
        heads, width = number(part, "num_heads"), number(part, "head_dim")
        return Linear(
            "kda", heads * width, heads, heads, width, width, number(part, "short_conv_kernel_size", default=4)
        )
    return None


def _mamba_of_hybrids(text: Config) -> Linear | None:
    """Falcon-H1 and Granite hybrids: configs/falcon_h1.py, configs/granitemoehybrid.py."""
    kinds = text.get("layer_types")
    if isinstance(kinds, Sequence) and "mamba" not in kinds:
        return None
    hidden = number(text, "hidden_size")
    inner = number(text, "mamba_d_ssm", default=number(text, "mamba_expand", default=2) * hidden)
    heads = number(text, "mamba_n_heads", default=128)
    width = text.get("mamba_d_head", "auto")
    return Linear(
        kind="mamba2",
        inner=inner,
        groups=number(text, "mamba_n_groups", default=1),
        heads=heads,
        head_dim=int(width) if isinstance(width, int) else inner // heads,
        state=number(text, "mamba_d_state", default=256),
        kernel=number(text, "mamba_d_conv", default=4),
        conv_bias=bool(text.get("mamba_conv_bias", True)),
        proj_bias=bool(text.get("mamba_proj_bias", False)),
        gated_norm=bool(text.get("mamba_rms_norm", True)),
    )
