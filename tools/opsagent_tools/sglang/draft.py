"""The draft model of speculative decoding: its weights as loaded, and what a token costs in its own pool.

Loaded after the target's pools up to 0.5.11, with a second embedding and head that are freed once the target's are shared
(models/qwen3_5_mtp.py `set_embed_and_head`); from 0.5.23 on before the pools.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opsagent_tools.sglang.allocator import reserved
from opsagent_tools.sglang.kv import kv_price
from opsagent_tools.sglang.modelspec import Layer, ModelSpec
from opsagent_tools.sglang.quant import Quant
from opsagent_tools.sglang.settings import Settings
from opsagent_tools.sglang.weights import Shards, Sized, layer_tensors, target_tensors, vocabulary


@dataclass(frozen=True, slots=True)
class Draft:
    """`weights` while loading and `resident` after sharing, bytes; `cell` bytes per token of its KV; `note` when it
    is a guess.
    """

    weights: int = 0
    resident: int = 0
    cell: float = 0.0
    layers: int = 0
    note: str = ""


NO_DRAFT = Draft()


def make_draft(spec: ModelSpec, settings: Settings, quant: Quant, shards: Shards, other: ModelSpec | None) -> Draft:
    """The draft that these settings load. `other` is the model of --speculative-draft-model-path, when it is known."""
    if settings.spec is None or settings.spec.algorithm == "NGRAM":
        return NO_DRAFT
    if settings.spec.algorithm == "STANDALONE":
        return _standalone(settings, shards, other)
    if settings.spec.algorithm in ("EAGLE3", "DFLASH") or (other is not None and "Eagle" in other.architecture):
        return _eagle3(spec, settings, shards, other)
    if not has_mtp(spec):
        return _standalone(settings, shards, other or spec)
    return _next_token(spec, settings, quant, shards)


MTP_FAMILIES = (
    "DeepseekV3", "DeepseekV32", "GlmMoeDsa", "Glm4Moe", "GlmOcr", "LongcatFlash", "MiMo", "Step3p5", "Bailing",
    "Ernie4_5_Moe", "Qwen3Next", "Qwen3_5", "ExaoneMoE", "NemotronH", "HYV3", "MistralLarge3", "Pixtral",
)  # fmt: skip
"""Architectures whose draft has a class of its own (configs/model_config.py `_config_draft_model`)."""


def has_mtp(spec: ModelSpec) -> bool:
    """Whether NEXTN loads the model's own draft layer. Others load the whole target once more as its draft."""
    return spec.architecture.startswith(MTP_FAMILIES)


def mtp_layer(spec: ModelSpec) -> Layer:
    """The draft's one decoder layer: full attention, experts where the target has them."""
    return Layer("full", "moe" if spec.moe is not None else "dense")


def _next_token(spec: ModelSpec, settings: Settings, quant: Quant, shards: Shards) -> Draft:
    """Multi-token prediction: own embedding and head, a projection of two hidden states, one layer."""
    e = spec.dtype_bytes
    scheme = quant
    if quant.kind == "nvfp4" and spec.architecture.startswith("Qwen3_5"):
        scheme = Quant()
    layer = mtp_layer(spec)
    inner = list(_mtp_layer_tensors(spec, scheme, shards, layer))
    shared = [("embedding", vocabulary(spec.vocab, shards.embed) * spec.hidden * e)]
    if not spec.tied:
        shared.append(("head", vocabulary(spec.vocab, shards.head) * spec.hidden * e))
    own = [("projection", 2 * spec.hidden * spec.hidden * e), *(("norms", spec.hidden * e) for _ in range(3))]
    one = replace(spec, layers=(layer,), linear=None, hybrid_swa=False)
    price = kv_price(one, replace(settings, pp=1), range(1))
    return Draft(
        weights=reserved(size for _, size in [*own, shared[0], *inner, *shared[1:]]),
        resident=reserved(size for _, size in [*own, *inner]),
        cell=price.cell,
        layers=1,
    )


def _mtp_layer_tensors(spec: ModelSpec, quant: Quant, shards: Shards, layer: Layer) -> Sized:
    yield from layer_tensors(replace(spec, linear=None), quant, shards, len(spec.layers), layer)


def _standalone(settings: Settings, shards: Shards, other: ModelSpec | None) -> Draft:
    if other is None:
        return Draft(
            note="draft model of --speculative-draft-model-path: its config.json was not given, its weights are not counted"
        )
    weights = reserved(size for _, size in target_tensors(other, Quant(), shards))
    price = kv_price(other, settings, range(len(other.layers)))
    return Draft(weights, weights, price.cell, len(other.layers))


def _eagle3(spec: ModelSpec, settings: Settings, shards: Shards, other: ModelSpec | None) -> Draft:
    """One layer that reads three hidden states of the target, with a head of its own (models/llama_eagle3.py)."""
    model = other or replace(
        spec,
        layers=(Layer("full", "dense"),),
        linear=None,
        mla=None,
        moe=None,
        vision=None,
        qk_norm="",
        output_gate=False,
    )
    e = model.dtype_bytes
    layer = Layer("full", "dense")
    tensors = list(layer_tensors(replace(model, layers=(layer,)), Quant(), shards, 0, layer))
    head = int(model.raw.get("draft_vocab_size") or model.vocab)
    extra = [3 * spec.hidden * model.hidden * e, vocabulary(head, shards.head) * model.hidden * e]
    embed = vocabulary(spec.vocab, shards.embed) * model.hidden * e
    price = kv_price(replace(model, layers=(layer,), hybrid_swa=False), settings, range(1))
    own = reserved([*(size for _, size in tensors), *extra])
    note = (
        ""
        if other is not None
        else "EAGLE3 draft: sized like one dense layer of the target; give its folder for exact numbers"
    )
    return Draft(own + embed, own, price.cell, 1, note)
