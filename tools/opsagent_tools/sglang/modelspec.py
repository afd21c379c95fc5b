"""A model as the planner sees it: what config.json says, in the words that SGLang's own classes use.

Read from the configuration alone, as configs/model_config.py and the models' constructors of SGLang do. Sizes of
attention and
feed-forward blocks, the kind of every layer, recurrent state, experts, vision tower, draft layers and quantisation.
What is not
understood is an InputError or a name in `not_modelled`, never a silent zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.errors import InputError

Config = Mapping[str, Any]

MLA_ARCHITECTURES = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "LongcatFlashForCausalLM",
        "MistralLarge3ForCausalLM",
        "KimiK25ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "KimiLinearForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "SarvamMLAForCausalLM",
        "DotsVLMForCausalLM",
        "MiniCPM3ForCausalLM",
    }
)
"""configs/model_config.py `_derive_model_shapes`: these use one latent vector per token instead of K and V heads."""

GDN_ARCHITECTURES = frozenset(
    {"Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"}
)
TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention (DeepSeek): ranks and head widths, in elements."""

    q_lora_rank: int
    kv_lora_rank: int
    nope: int
    rope: int
    v: int
    index_heads: int = 0
    index_dim: int = 0


@dataclass(frozen=True, slots=True)
class Linear:
    """Recurrent layers: gated delta net, mamba2, or kimi delta attention. Widths before tensor parallelism."""

    kind: str
    """`gdn`, `mamba2`, `kda` or `shortconv`."""
    inner: int
    """Width of the values (mamba2: intermediate size)."""
    groups: int
    """Key heads (gdn) or B/C groups (mamba2)."""
    heads: int
    head_dim: int
    state: int
    """Width of a key head (gdn) or of the state (mamba2)."""
    kernel: int
    conv_bias: bool = False
    proj_bias: bool = False
    gated_norm: bool = True


@dataclass(frozen=True, slots=True)
class Moe:
    """Mixture of experts. `shared` is the width of the shared expert (0: none)."""

    experts: int
    width: int
    top_k: int
    shared: int = 0
    shared_gate: bool = False
    fused_shared: int = 0
    """Shared experts that SGLang stores as further routed experts (DeepSeek-V3 at ep 1)."""
    bias: bool = False
    correction_bias: bool = False
    gated: bool = True
    latent: int = 0


@dataclass(frozen=True, slots=True)
class Vision:
    """A vision tower: its encoder and what joins it to the language model."""

    depth: int
    hidden: int
    heads: int
    intermediate: int
    out: int
    patch: int
    temporal: int
    merge: int
    channels: int
    positions: int
    deepstack: int
    gated_mlp: bool
    rope_rows: int
    num_hidden_layers: int | None
    """What SGLang's memory heuristic reads (absent in the Qwen towers, which say `depth`)."""
    qwen: bool = True
    """The Qwen-VL kind: convolution over time, merger, own rope table. Else a plain encoder."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: its mixer (`full`, `swa`, `linear`, `both`, `none`) and its feed-forward (`dense`, `moe`,
    `none`).
    """

    mixer: str
    mlp: str


@dataclass(frozen=True)
class ModelSpec:
    """Everything the planner needs to know of one checkpoint. Widths in elements, before tensor parallelism."""

    architecture: str
    model_type: str
    dtype_bytes: int
    hidden: int
    vocab: int
    tied: bool
    context: int
    layers: tuple[Layer, ...]
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    intermediate: int
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: str = ""
    """`` none, `head` one norm per head width, `full` over all heads."""
    output_gate: bool = False
    mlp_gated: bool = True
    mlp_bias: bool = False
    norms: int = 2
    head_bytes: int = 2
    embed_sharded: bool = True
    rope_tables: int = 1
    """Tables of cosines that are regrown for the context."""
    rope_copies: int = 0
    """Further tables of the same size that stay as they are (DeepSeek's YaRN keeps cosines and sines apart too)."""
    swa_kv_heads: int = 0
    swa_head_dim: int = 0
    swa_v_head_dim: int = 0
    hybrid_swa: bool = False
    sinks: bool = False
    k_eq_v: bool = False
    mla: Mla | None = None
    linear: Linear | None = None
    moe: Moe | None = None
    vision: Vision | None = None
    mtp_layers: int = 0
    rotary_dim: int = 0
    rope_rows: int = 0
    ssm_dtype: str = "float32"
    quantization: Config = field(default_factory=dict)
    multimodal: bool = False
    encoder_subconfig: bool = False
    not_modelled: tuple[str, ...] = ()
    raw: Config = field(default_factory=dict, repr=False)

    @property
    def is_hybrid(self) -> bool:
        """Whether recurrent state is kept besides KV (SGLang's `mambaish_config`)."""
        return self.linear is not None

    def count(self, *mixers: str) -> int:
        return sum(layer.mixer in mixers for layer in self.layers)


def number(config: Config, *names: str, default: int | None = None, where: str = "config.json") -> int:
    """The first of `names` that is there, as an int; InputError when none is and there is no default."""
    for name in names:
        value = config.get(name)
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, (int, float)):
            return int(value)
        raise InputError(f"{names[0]} is {value!r}, not a number", where=where)
    if default is None:
        raise InputError(
            f"{names[0]} is missing",
            where=where,
            hint="Is this the config.json of a language model? Copy it again from the hub.",
        )
    return default


def text_config(config: Config) -> Config:
    """The language model's part: nested in multimodal models (`text_config` …), else the whole."""
    for key in TEXT_KEYS:
        inner = config.get(key)
        if isinstance(inner, Mapping) and "num_hidden_layers" in inner:
            return inner
        if isinstance(inner, Mapping):
            nested = text_config(inner)
            if nested is not inner:
                return nested
    return config


def architecture_of(config: Config) -> str:
    names = config.get("architectures")
    if not isinstance(names, Sequence) or isinstance(names, str) or not names or not isinstance(names[0], str):
        raise InputError(
            "architectures is missing or empty",
            where="config.json",
            hint="SGLang picks the model class by it; a config.json of the hub has it.",
        )
    return names[0]


def dtype_bytes(config: Config, text: Config, flag: str = "auto") -> int:
    """Bytes of an activation and of an unquantised weight (configs/model_config.py `_get_and_verify_dtype`)."""
    name = str(
        text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype") or "float32"
    )
    if flag not in ("auto", ""):
        name = flag
    elif name == "float32":
        return 2
    return 4 if name in ("float32", "float") else 2


def context_length(text: Config, *, per_layer_rope: bool = False) -> int:
    """Longest context the model was made for (utils/hf_transformers/common.py `get_context_length`).

    With `per_layer_rope` the configuration class files scaling by kind of layer, where SGLang does not see the factor.
    """
    scaling = {} if per_layer_rope else text.get("rope_scaling") or text.get("rope_parameters") or {}
    factor = 1.0
    if isinstance(scaling, Mapping):
        factor = float(scaling.get("factor", 1) or 1)
        kind = scaling.get("rope_type") or scaling.get("type")
        if "original_max_position_embeddings" in scaling or kind == "llama3":
            factor = 1.0
    for key in ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings"):
        value = text.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return int(factor * value)
    return 2048
