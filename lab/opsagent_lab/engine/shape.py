"""What the engine needs from a model's config.json: layers, heads, experts, recurrent state, vision, drafting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEXT_ARCHITECTURES = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "MixtralForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "NemotronHForCausalLM",
    }
)
"""Architectures whose tensors this engine knows."""

KNOWN_MODEL_TYPES = frozenset(
    [
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen3",
        "qwen2_moe",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_moe",
        "nemotron_h",
        "gemma3",
        "gemma3_text",
        "gpt_oss",
        "deepseek_v3",
        "glm4",
        "glm4_moe",
        "phi3",
        "falcon_h1",
        "qwen3_vl",
        "qwen2_5_vl",
    ]
)
"""`model_type`s that the transformers of every modelled SGLang version knows (an unknown one is refused by AutoConfig)."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A gated-delta (GDN) or mamba2 mixer: heads and dimensions, in elements."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    ssm_dtype: str


@dataclass(frozen=True, slots=True)
class Experts:
    count: int
    width: int
    shared_width: int


@dataclass(frozen=True, slots=True)
class Vision:
    depth: int
    hidden: int
    width: int
    heads: int
    patch_elements: int
    positions: int
    merge: int
    out: int
    mlp_layers_known: int | None
    """`num_hidden_layers` when the config has it: SGLang's memory factor looks at that name only."""


@dataclass(frozen=True, slots=True)
class Shape:
    architecture: str
    model_type: str
    hidden: int
    layers: int
    attention_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    vocab: int
    tied: bool
    max_context: int
    rotary_dim: int
    gated_output: bool
    qk_norm: bool
    draft_layers: int
    linear: Linear | None
    experts: Experts | None
    vision: Vision | None
    quant: str | None
    quant_bits: int
    dtype: str

    @property
    def hybrid(self) -> bool:
        """Whether the model keeps recurrent state besides (or instead of) KV."""
        return self.linear is not None

    @property
    def linear_layers(self) -> int:
        return self.layers - self.attention_layers if self.linear else 0

    @property
    def drafting_layers(self) -> int:
        """Attention layers of what NEXTN loads: the MTP layers, or without any the whole model once more."""
        return self.draft_layers or self.attention_layers

    @property
    def draft_class(self) -> str:
        """The class that SGLang names at "Load weight end" of the draft model."""
        return {
            "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
            "Qwen3_5MoeForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
            "Qwen3NextForCausalLM": "Qwen3NextForCausalLMMTP",
        }.get(self.architecture, self.architecture)


def _linear(text: Mapping[str, Any]) -> Linear | None:
    if "linear_num_value_heads" not in text:
        return None
    return Linear(
        key_heads=text["linear_num_key_heads"],
        value_heads=text["linear_num_value_heads"],
        key_dim=text["linear_key_head_dim"],
        value_dim=text["linear_value_head_dim"],
        kernel=text.get("linear_conv_kernel_dim", 4),
        ssm_dtype=text.get("mamba_ssm_dtype", "float32"),
    )


def _attention_layers(text: Mapping[str, Any], layers: int) -> int:
    types = text.get("layer_types")
    if types and "linear_attention" in types:
        return sum(1 for t in types if t == "full_attention")
    interval = text.get("full_attention_interval")
    if interval and "linear_num_value_heads" in text:
        return layers // int(interval)
    pattern = text.get("hybrid_override_pattern")
    return pattern.count("*") if pattern else layers


def _experts(text: Mapping[str, Any]) -> Experts | None:
    count = text.get("num_experts") or text.get("num_local_experts") or 0
    if not count:
        return None
    width = text.get("moe_intermediate_size") or text["intermediate_size"]
    return Experts(count, width, text.get("shared_expert_intermediate_size") or 0)


def _vision(config: Mapping[str, Any]) -> Vision | None:
    v = config.get("vision_config")
    if not isinstance(v, Mapping):
        return None
    patch = v.get("patch_size", 16)
    return Vision(
        depth=v.get("depth", v.get("num_hidden_layers", 24)),
        hidden=v.get("hidden_size", 1024),
        width=v.get("intermediate_size", 4096),
        heads=v.get("num_heads", v.get("num_attention_heads", 16)),
        patch_elements=v.get("in_channels", 3) * v.get("temporal_patch_size", 1) * patch * patch,
        positions=v.get("num_position_embeddings", 0),
        merge=v.get("spatial_merge_size", 2),
        out=v.get("out_hidden_size", 0),
        mlp_layers_known=v.get("num_hidden_layers"),
    )


def _quant(config: Mapping[str, Any], text: Mapping[str, Any]) -> tuple[str | None, int]:
    q = config.get("quantization_config") or text.get("quantization_config")
    if not isinstance(q, Mapping):
        return None, 16
    method = str(q.get("quant_method", ""))
    return method, int(q.get("bits", 8 if method == "fp8" else 4))


def read_shape(config: Mapping[str, Any]) -> Shape:
    """The shape of a parsed config.json. Raises KeyError on a config without the sizes of a language model."""
    text: Mapping[str, Any] = config.get("text_config") or config
    layers, heads, hidden = text["num_hidden_layers"], text["num_attention_heads"], text["hidden_size"]
    head_dim = text.get("head_dim") or text.get("attention_head_dim") or hidden // heads
    rope = text.get("rope_parameters") or {}
    partial = text.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1.0
    architecture = (config.get("architectures") or [""])[0]
    quant, bits = _quant(config, text)
    return Shape(
        architecture=architecture,
        model_type=str(config.get("model_type", "")),
        hidden=hidden,
        layers=layers,
        attention_layers=_attention_layers(text, layers),
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        width=text.get("intermediate_size", 0),
        vocab=text["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        max_context=text.get("max_position_embeddings", 2048),
        rotary_dim=int(head_dim * partial),
        gated_output=bool(text.get("attn_output_gate")) or architecture == "Qwen3NextForCausalLM",
        qk_norm="Qwen3" in architecture,
        draft_layers=int(text.get("mtp_num_hidden_layers") or text.get("num_nextn_predict_layers") or 0)
        or (1 if architecture == "Qwen3NextForCausalLM" else 0),
        linear=_linear(text),
        experts=_experts(text),
        vision=_vision(config),
        quant=quant,
        quant_bits=bits,
        dtype=str(text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype") or "bfloat16"),
    )
