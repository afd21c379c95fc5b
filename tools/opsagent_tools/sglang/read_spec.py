"""From config.json to a `ModelSpec`: the one entry that reads a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from opsagent_tools.errors import InputError
from opsagent_tools.sglang.families import FAMILIES, Family, read_layers, read_linear, read_mla, read_moe
from opsagent_tools.sglang.modelspec import (
    MLA_ARCHITECTURES,
    Config,
    Mla,
    ModelSpec,
    Vision,
    architecture_of,
    context_length,
    dtype_bytes,
    number,
    text_config,
)
from opsagent_tools.sglang.quant import read_quant

QWEN_TOWERS = ("Qwen3VL", "Qwen3_5", "Qwen2_5_VL", "Qwen2VL")
SWA_ARCHITECTURES = frozenset(
    {
        "Llama4ForConditionalGeneration",
        "GptOssForCausalLM",
        "MiMoV2ForCausalLM",
        "MiMoV2FlashForCausalLM",
        "Step3p5ForCausalLM",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
    }
)
"""configs/model_config.py `is_hybrid_swa_model` of 0.5.11; which versions know which is in `arithmetic.py`."""


def read_spec(config: Config, *, dtype: str = "auto") -> ModelSpec:
    """What config.json says of the model, in elements before any parallelism.

    `dtype` is SGLang's --dtype. Raises InputError when a field that every language model has is missing or is no number.
    """
    if not isinstance(config, Mapping):
        raise InputError("the configuration is not a JSON object", where="config.json")
    try:
        spec = _spec(config, dtype)
        read_quant(spec.quantization)
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
        if isinstance(error, InputError):
            raise
        words = f"a field is not of the kind that SGLang expects ({error})"
        raise InputError(words, where="config.json", hint="Compare it with the one on the hub.") from error
    check_sizes(spec)
    return spec


def check_sizes(spec: ModelSpec) -> None:
    """Refuse widths that no model has: what follows divides by them."""
    sizes: dict[str, float] = {
        "hidden_size": spec.hidden, "num_attention_heads": spec.heads, "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim, "v_head_dim": spec.v_head_dim, "vocab_size": spec.vocab,
        "intermediate_size": spec.intermediate, "max_position_embeddings": spec.context,
    }  # fmt: skip
    groups = {
        "linear attention": spec.linear,
        "experts": spec.moe,
        "vision_config": spec.vision,
        "latent attention": spec.mla,
    }
    may_be_zero = {"shared", "fused_shared", "latent", "positions", "deepstack", "rope_rows", "q_lora_rank", "rope"}
    may_be_zero |= {"index_heads", "index_dim", "state", "num_hidden_layers"}
    for name, group in groups.items():
        for field in fields(group) if group is not None else ():
            value = getattr(group, field.name)
            if isinstance(value, int) and not isinstance(value, bool):
                sizes[f"{name}: {field.name}"] = max(value, 1) if field.name in may_be_zero and value >= 0 else value
    for name, size in sizes.items():
        if not 0 < size < 1 << 33:
            raise InputError(f"{name} is {size}", where="config.json", hint="Compare it with the one on the hub.")
    if spec.vision is not None and spec.vision.hidden < spec.vision.heads:
        raise InputError("vision_config has more heads than width", where="config.json")


@dataclass(frozen=True, slots=True)
class _Heads:
    """How attention is built: heads, their widths, and the biases of the projections."""

    heads: int
    head_dim: int
    mla: Mla | None
    qkv_bias: bool
    o_bias: bool
    rotary_dim: int


def _heads(architecture: str, text: Config, family: Family, hidden: int, rope: Any) -> _Heads:
    heads = number(text, "num_attention_heads", "n_head")
    if hidden <= 0 or heads <= 0:
        raise InputError(f"hidden_size {hidden} or num_attention_heads {heads} is not positive", where="config.json")
    mla = read_mla(text) if _is_mla(architecture, text) else None
    head_dim = number(text, "attention_head_dim", default=0) if architecture.startswith("NemotronH") else 0
    head_dim = head_dim or number(text, "head_dim", default=family.head_dim or hidden // heads)
    bias = bool(text.get("attention_bias", text.get("qkv_bias", False)))
    inner = rope.get("partial_rotary_factor") if isinstance(rope, Mapping) else 0
    partial = float(text.get("partial_rotary_factor") or inner or 1.0)
    return _Heads(
        heads, head_dim, mla, bias if family.qkv_bias is None else family.qkv_bias,
        bias if family.o_bias is None else family.o_bias,
        0 if _no_rope(architecture, text) else mla.rope if mla else int(head_dim * partial),
    )  # fmt: skip


def _spec(config: Config, dtype: str) -> ModelSpec:
    architecture, text = architecture_of(config), text_config(config)
    family = FAMILIES.get(architecture, Family())
    hidden = number(text, "hidden_size", "n_embd", "d_model")
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    at = _heads(architecture, text, family, hidden, rope)
    layers, mla = read_layers(architecture, text), at.mla
    # A hybrid whose configuration names no recurrent layer has no state to divide the memory by.
    linear = read_linear(architecture, text) if any(layer.mixer in ("linear", "both") for layer in layers) else None
    width = dtype_bytes(config, text, dtype)
    return ModelSpec(
        architecture=architecture, model_type=str(config.get("model_type") or ""), dtype_bytes=width, hidden=hidden,
        vocab=number(text, "vocab_size", default=0) or number(config, "vocab_size"),
        tied=_tied(architecture, config, text, family), layers=layers, heads=at.heads,
        context=context_length(text, per_layer_rope=architecture.startswith("Gemma3")),
        kv_heads=number(
            text, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", default=at.heads
        ),
        head_dim=mla.nope + mla.rope if mla else at.head_dim,
        v_head_dim=number(text, "v_head_dim", default=at.head_dim),
        intermediate=_width(architecture, text, hidden), qkv_bias=at.qkv_bias, o_bias=at.o_bias,
        qk_norm="head" if architecture == "Glm4MoeForCausalLM" and text.get("use_qk_norm") else family.qk_norm,
        output_gate=bool(text.get("attn_output_gate", architecture.startswith(("Qwen3Next", "Qwen3_5")))),
        mlp_gated=family.mlp_gated, mlp_bias=bool(text.get("mlp_bias", False)), norms=family.norms,
        head_bytes=family.head_bytes or width, embed_sharded=family.embed_sharded, rope_tables=family.rope_tables,
        rope_copies=2 if mla and _is_yarn(rope) else 0, swa_kv_heads=number(text, "swa_num_key_value_heads", default=0),
        swa_head_dim=number(text, "swa_head_dim", default=0), swa_v_head_dim=number(text, "swa_v_head_dim", default=0),
        hybrid_swa=architecture in SWA_ARCHITECTURES, sinks=family.sinks, mla=mla, linear=linear,
        moe=read_moe(architecture, text), vision=read_vision(architecture, config),
        mtp_layers=number(text, "mtp_num_hidden_layers", "num_nextn_predict_layers", default=0),
        rotary_dim=at.rotary_dim, rope_rows=_rope_rows(text, rope),
        ssm_dtype=str(text.get("mamba_ssm_dtype") or "float32"), quantization=_quantization(config, text),
        multimodal=text is not config or "vision_config" in config, encoder_subconfig=text is not config,
        not_modelled=_gaps(architecture, config, text), raw=config,
    )  # fmt: skip


def _tied(architecture: str, config: Config, text: Config, family: Family) -> bool:
    """Whether the output layer is the embedding. LFM2's class has its own, whatever its configuration says."""
    said = text.get("tie_word_embeddings", config.get("tie_word_embeddings", family.tied))
    return not architecture.startswith("Lfm2For") and bool(said)


def _quantization(config: Config, text: Config) -> Mapping[str, Any]:
    said = config.get("quantization_config") or text.get("quantization_config") or config.get("compression_config")
    return said if isinstance(said, Mapping) else {}


def _is_mla(architecture: str, text: Config) -> bool:
    if architecture in MLA_ARCHITECTURES:
        return True
    return architecture in {"DeepseekVL2ForCausalLM", "PixtralForConditionalGeneration"} and bool(
        text.get("kv_lora_rank")
    )


def _rope_rows(text: Config, rope: object) -> int:
    """Rows of the cos/sin table as built: YaRN scales the original length (layers/rotary_embedding.py)."""
    rows = number(text, "max_position_embeddings", "max_sequence_length", "seq_length", default=2048)
    if isinstance(rope, Mapping):
        original = rope.get("original_max_position_embeddings")
        if _is_yarn(rope) and isinstance(original, int):
            return int(original * float(rope.get("factor", 1) or 1))
    return rows


def _no_rope(architecture: str, text: Config) -> bool:
    """Models that turn no positions: attention of Nemotron-H, Granite's and Kimi's without position embeddings."""
    return (
        architecture.startswith("NemotronH")
        or bool(text.get("mla_use_nope"))
        or text.get("position_embedding_type") == "nope"
    )


def _width(architecture: str, text: Config, hidden: int) -> int:
    """Width of the dense feed-forward. LFM2 adjusts what it is told (models/lfm2.py)."""
    if architecture.startswith("Llama4"):
        return number(text, "intermediate_size_mlp", "intermediate_size")
    width = number(text, "intermediate_size", "block_ff_dim", "n_inner", "ffn_hidden_size", default=4 * hidden)
    if architecture == "Lfm2ForCausalLM" and text.get("block_auto_adjust_ff_dim"):
        width = int(float(text.get("block_ffn_dim_multiplier") or 1.0) * (2 * width // 3))
        multiple = number(text, "block_multiple_of", default=256)
        width = -(-width // multiple) * multiple
    return width


def _is_yarn(rope: object) -> bool:
    return isinstance(rope, Mapping) and (rope.get("rope_type") or rope.get("type")) in ("yarn", "deepseek_yarn")


def read_vision(architecture: str, config: Config) -> Vision | None:
    """The vision tower, exact for the Qwen-VL kind, by its parameter count for others."""
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return None
    exact = architecture.startswith(QWEN_TOWERS)
    hidden = number(
        vision,
        "embed_dim" if "embed_dim" in vision else "hidden_size",
        "hidden_size",
        default=1024,
        where="vision_config",
    )
    layers = vision.get("num_hidden_layers")
    depth = number(vision, "depth", "num_hidden_layers", default=24, where="vision_config")
    inner = number(vision, "intermediate_size", default=4 * hidden, where="vision_config")
    return Vision(
        depth=depth,
        hidden=hidden,
        heads=number(vision, "num_heads", "num_attention_heads", default=16, where="vision_config"),
        intermediate=inner,
        out=number(vision, "out_hidden_size", default=hidden, where="vision_config"),
        patch=number(vision, "patch_size", default=14, where="vision_config"),
        temporal=number(vision, "temporal_patch_size", default=1, where="vision_config"),
        merge=number(vision, "spatial_merge_size", default=2, where="vision_config"),
        channels=number(vision, "in_channels", "in_chans", "num_channels", default=3, where="vision_config"),
        positions=_positions(vision),
        deepstack=len(vision.get("deepstack_visual_indexes") or ()),
        gated_mlp=architecture.startswith("Qwen2_5"),
        rope_rows=8192 if exact else 0,
        num_hidden_layers=int(layers) if isinstance(layers, int) else None,
        qwen=exact,
    )


def _gaps(architecture: str, config: Config, text: Config) -> tuple[str, ...]:
    """What of this model the planner knows only roughly, in words."""
    gaps = []
    if isinstance(config.get("vision_config"), Mapping) and not architecture.startswith(QWEN_TOWERS):
        gaps.append("vision tower: counted as a plain encoder")
    if isinstance(config.get("audio_config"), Mapping):
        gaps.append("audio tower: not counted")
    if architecture.startswith(("Gemma3n", "JetNemotron", "JetVLM", "Mllama", "Whisper")):
        gaps.append(f"{architecture}: special blocks are counted as plain attention")
    if text.get("layer_group_size") and architecture == "BailingMoeV2_5ForCausalLM":
        gaps.append("lightning attention state: not counted")
    return tuple(gaps)


def _positions(vision: Config) -> int:
    """Rows of the learned positions: said (Qwen), or one per patch of the largest image."""
    rows = number(vision, "num_position_embeddings", default=0, where="vision_config")
    if rows or "window_size" in vision or "image_size" not in vision:
        return rows
    size = vision["image_size"]
    return (
        (int(size) // number(vision, "patch_size", default=14, where="vision_config")) ** 2
        if isinstance(size, int)
        else 0
    )
