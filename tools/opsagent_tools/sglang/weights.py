"""Bytes of the target's weights on one GPU, tensor by tensor, as SGLang's modules allocate them.

Fused (qkv, gate and up), padded (vocabulary to 64), replicated (KV heads beyond tensor parallelism), with what is
never sharded.
Source: models/*.py, layers/linear.py, layers/vocab_parallel_embedding.py, layers/moe/fused_moe_triton/layer.py of
SGLang 0.5.11.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opsagent_tools.sglang.allocator import MIB
from opsagent_tools.sglang.conversion import QUANTISED, loaded_bytes
from opsagent_tools.sglang.modelspec import Layer, Linear, Mla, ModelSpec, Moe, Vision
from opsagent_tools.sglang.quant import Quant
from opsagent_tools.sglang.state import divide, groups_after_split

FLOAT32 = 4
Sized = Iterator[tuple[str, int]]
"""Pairs of a part (`attention`, `experts` …) and bytes, in the order in which the modules are built."""


@dataclass(frozen=True, slots=True)
class Shards:
    """By what each kind of tensor is divided. `tp` is the whole group of one pipeline stage."""

    tp: int = 1
    atp: int = 1
    """Attention: tp / dp under DP attention."""
    dense: int = 1
    """Dense feed-forward: tp, or 1 with --moe-dense-tp-size 1."""
    moe_tp: int = 1
    moe_ep: int = 1
    redundant: int = 0
    shared: int = 1
    embed: int = 1
    head: int = 1
    vision: int = 1
    pp: int = 1
    fuse_shared: bool = True
    mxfp4_upcast: bool = False


def pipeline_range(layers: int, rank: int, size: int) -> range:
    """Layers of one pipeline stage (distributed/utils.py `get_pp_indices`): the remainder goes to the last stages but
    one.
    """
    base, rest = divmod(layers, size)
    sizes = [base] * size
    for i in range(2, rest + 2):
        sizes[-i] += 1
    start = sum(sizes[:rank])
    return range(start, start + sizes[rank])


def vocabulary(vocab: int, parts: int) -> int:
    """Rows of an embedding on one GPU: padded to 64, then split (layers/vocab_parallel_embedding.py)."""
    pad = 64 if parts == 1 or 64 % parts == 0 else 64 * parts
    return -(-vocab // pad) * pad // parts


def weight_bytes(spec: ModelSpec, quant: Quant, shards: Shards, *, language_only: bool = False) -> dict[str, int]:
    """Bytes by part on the fullest pipeline stage, and `total` as the driver sees it (allocator segments)."""
    best: dict[str, int] = {}
    for rank in range(shards.pp):
        built = quant if quant.from_checkpoint else Quant()
        tensors = list(target_tensors(spec, built, shards, rank, language_only=language_only))
        parts: dict[str, int] = {}
        for part, size in tensors:
            kept = size // 2 if not quant.from_checkpoint and part in QUANTISED and size > MIB else size
            parts[part] = parts.get(part, 0) + kept
        parts["total"] = loaded_bytes(spec, quant, shards.atp, tensors)
        if parts["total"] > best.get("total", -1):
            best = parts
    return best


def target_tensors(
    spec: ModelSpec, quant: Quant, shards: Shards, rank: int = 0, *, language_only: bool = False
) -> Sized:
    """Every tensor of the target model on one GPU of pipeline stage `rank`."""
    e = spec.dtype_bytes
    first, last = rank == 0, rank == shards.pp - 1
    if spec.vision is not None and not language_only:
        yield from vision_tensors(spec.vision, e, shards.vision, spec.hidden)
    if first or (last and spec.tied):
        rows = vocabulary(spec.vocab, shards.embed) if spec.embed_sharded else spec.vocab
        yield "embedding", rows * spec.hidden * (spec.head_bytes if spec.tied else e)
    yield from rope_tensors(spec)
    for i in pipeline_range(len(spec.layers), rank, shards.pp):
        yield from layer_tensors(spec, quant, shards, i, spec.layers[i])
    if last:
        yield "norms", spec.hidden * e
        if not spec.tied:
            yield "head", vocabulary(spec.vocab, shards.head) * spec.hidden * spec.head_bytes


def rope_tensors(spec: ModelSpec) -> Sized:
    """One shared table of cosines and sines in float32."""
    if spec.rotary_dim > 0 and spec.count("full", "swa", "both"):
        for _ in range(spec.rope_tables + spec.rope_copies):
            yield "rope", spec.rope_rows * spec.rotary_dim * FLOAT32


def layer_tensors(spec: ModelSpec, quant: Quant, shards: Shards, index: int, layer: Layer) -> Sized:
    """One decoder layer on one GPU."""
    e, name = spec.dtype_bytes, f"model.layers.{index}"
    if layer.mixer in ("full", "swa", "both"):
        if spec.mla is not None:
            yield from mla_tensors(spec, spec.mla, quant, shards.atp, name)
        else:
            yield from attention_tensors(spec, quant, shards.atp, name, swa=layer.mixer == "swa")
    if layer.mixer in ("linear", "both") and spec.linear is not None:
        yield from linear_tensors(spec, spec.linear, quant, shards.atp, name)
    if layer.mlp == "dense":
        yield from mlp_tensors(spec, quant, shards.dense, spec.intermediate, f"{name}.mlp")
    elif layer.mlp == "moe" and spec.moe is not None:
        yield from moe_tensors(spec, spec.moe, quant, shards, name)
    for _ in range(spec.norms):
        yield "norms", spec.hidden * e


def _linear(part: str, quant: Quant, name: str, out: int, inn: int, e: int, bias: int = 0) -> Sized:
    sizes = [out * inn * e] if quant.skips(name) else quant.linear(out, inn, e)
    for size in sizes:
        yield part, size
    if bias:
        yield part, bias * e


def kv_heads_per_gpu(kv_heads: int, atp: int) -> int:
    """KV heads of one GPU: replicated when there are fewer than GPUs."""
    return max(1, kv_heads // atp)


def attention_tensors(spec: ModelSpec, quant: Quant, atp: int, name: str, *, swa: bool = False) -> Sized:
    """Fused q, k, v (q twice with an output gate) and o."""
    e = spec.dtype_bytes
    kv = spec.swa_kv_heads if swa and spec.swa_kv_heads else spec.kv_heads
    head = spec.swa_head_dim if swa and spec.swa_head_dim else spec.head_dim
    v_head = (spec.swa_v_head_dim or head) if swa and spec.swa_head_dim else spec.v_head_dim
    q_heads = divide(spec.heads, atp)
    q = q_heads * head * (2 if spec.output_gate else 1)
    kv_rows = kv_heads_per_gpu(kv, atp) * (head + v_head)
    qkv_name = f"{name}.self_attn.q_proj"
    yield from _linear("attention", quant, qkv_name, q + kv_rows, spec.hidden, e, q + kv_rows if spec.qkv_bias else 0)
    if spec.sinks:
        yield "attention", q_heads * e
    o_name = f"{name}.self_attn.o_proj"
    yield from _linear("attention", quant, o_name, spec.hidden, q_heads * v_head, e, spec.hidden if spec.o_bias else 0)
    if spec.qk_norm == "head":
        yield from (("norms", head * e) for _ in range(2))
    elif spec.qk_norm == "full":
        yield "norms", q_heads * head * e
        yield "norms", kv_heads_per_gpu(kv, atp) * head * e


def mla_tensors(spec: ModelSpec, mla: Mla, quant: Quant, atp: int, name: str) -> Sized:
    """Latent attention: the down projections are replicated (the copies of kv_b: conversion.py)."""
    e, heads = spec.dtype_bytes, divide(spec.heads, atp)
    attn = f"{name}.self_attn"
    if mla.q_lora_rank:
        yield from _linear(
            "attention", quant, f"{attn}.q_a_proj", mla.q_lora_rank + mla.kv_lora_rank + mla.rope, spec.hidden, e
        )
        yield "norms", mla.q_lora_rank * e
        yield from _linear("attention", quant, f"{attn}.q_b_proj", heads * (mla.nope + mla.rope), mla.q_lora_rank, e)
    else:
        yield from _linear("attention", quant, f"{attn}.q_proj", heads * (mla.nope + mla.rope), spec.hidden, e)
        yield from _linear(
            "attention", quant, f"{attn}.kv_a_proj_with_mqa", mla.kv_lora_rank + mla.rope, spec.hidden, e
        )
    if mla.index_heads:
        width = mla.index_heads * mla.index_dim
        yield from _linear("attention", quant, f"{attn}.indexer.wq_b", width, mla.q_lora_rank, e)
        yield from _linear("attention", quant, f"{attn}.indexer.wk", mla.index_dim, spec.hidden, e)
        yield "attention", mla.index_heads * spec.hidden * e
    yield from _linear("attention", quant, f"{attn}.kv_b_proj", heads * (mla.nope + mla.v), mla.kv_lora_rank, e)
    yield from _linear("attention", quant, f"{attn}.o_proj", spec.hidden, heads * mla.v, e)
    yield "norms", mla.kv_lora_rank * e


def linear_tensors(spec: ModelSpec, linear: Linear, quant: Quant, atp: int, name: str) -> Sized:
    """Gated delta net, mamba2, kimi delta attention or a short convolution."""
    e, hidden = spec.dtype_bytes, spec.hidden
    heads = divide(linear.heads, atp) if linear.kind != "shortconv" else 0
    inner = divide(linear.inner, atp)
    if linear.kind == "gdn":
        keys = divide(linear.groups * linear.state, atp)
        yield "recurrent", (2 * keys + inner) * linear.kernel * e
        yield from _linear("recurrent", quant, f"{name}.linear_attn.in_proj_qkvz", 2 * keys + 2 * inner, hidden, e)
        yield from _linear("recurrent", quant, f"{name}.linear_attn.in_proj_ba", 2 * heads, hidden, e)
        yield "recurrent", heads * e
        yield "recurrent", heads * FLOAT32
        yield "norms", linear.head_dim * e
        yield from _linear("recurrent", quant, f"{name}.linear_attn.out_proj", hidden, inner, e)
    elif linear.kind == "mamba2":
        bc = 2 * groups_after_split(linear.groups, atp) * linear.state // atp
        mixer = f"{name}.mixer" if spec.architecture.startswith("NemotronH") else f"{name}.mamba"
        yield "recurrent", (inner + bc) * linear.kernel * e
        if linear.conv_bias:
            yield "recurrent", (inner + bc) * e
        rows = 2 * inner + bc + heads
        yield from _linear("recurrent", quant, f"{mixer}.in_proj", rows, hidden, e, rows if linear.proj_bias else 0)
        yield from (("recurrent", size) for size in (heads * FLOAT32, heads * e, heads * e))
        yield from _linear("recurrent", quant, f"{mixer}.out_proj", hidden, inner, e, hidden if linear.proj_bias else 0)
        if linear.gated_norm:
            yield "norms", inner * e
    elif linear.kind == "kda":
        rank = linear.head_dim
        rows = 3 * inner + heads + 2 * rank
        yield from _linear("recurrent", quant, f"{name}.self_attn.q_proj", rows, hidden, e)
        yield from (
            ("recurrent", size) for size in (2 * inner * rank * e, inner * FLOAT32, 3 * inner * linear.kernel * FLOAT32)
        )
        yield from _linear("recurrent", quant, f"{name}.self_attn.o_proj", hidden, inner, e)
    else:
        yield from _linear("recurrent", quant, f"{name}.conv.in_proj", 3 * inner, hidden, e)
        yield "recurrent", inner * linear.kernel * e
        yield from _linear("recurrent", quant, f"{name}.conv.out_proj", hidden, inner, e)


def mlp_tensors(spec: ModelSpec, quant: Quant, parts: int, width: int, name: str, part: str = "mlp") -> Sized:
    """Gate and up in one tensor, and down."""
    e, local = spec.dtype_bytes, divide(width, parts)
    up = local * (2 if spec.mlp_gated else 1)
    yield from _linear(part, quant, f"{name}.gate_proj", up, spec.hidden, e, up if spec.mlp_bias else 0)
    yield from _linear(part, quant, f"{name}.down_proj", spec.hidden, local, e, spec.hidden if spec.mlp_bias else 0)


def moe_tensors(spec: ModelSpec, moe: Moe, quant: Quant, shards: Shards, name: str) -> Sized:
    """Router (replicated), routed experts, shared expert."""
    e, hidden = spec.dtype_bytes, spec.hidden
    mlp = f"{name}.mixer" if spec.architecture.startswith("NemotronH") else f"{name}.mlp"
    yield "experts", moe.experts * hidden * e
    if moe.bias:
        yield "experts", moe.experts * e
    if moe.correction_bias:
        yield "experts", moe.experts * FLOAT32
    fused = moe.fused_shared if shards.fuse_shared and shards.moe_ep == 1 else 0
    count = divide(moe.experts + fused + shards.redundant, shards.moe_ep)
    width = divide(moe.width, shards.moe_tp)
    expert_hidden = moe.latent or hidden
    yield from expert_tensors(moe, quant, count, width, expert_hidden, e, f"{mlp}.experts", upcast=shards.mxfp4_upcast)
    if moe.latent:
        yield "experts", 2 * moe.latent * hidden * e
    if moe.shared and not fused:
        yield from mlp_tensors(spec, quant, shards.shared, moe.shared, f"{mlp}.shared_experts", "experts")
        if moe.shared_gate:
            yield "experts", hidden * e


def expert_tensors(
    moe: Moe, quant: Quant, count: int, width: int, hidden: int, e: int, name: str, *, upcast: bool
) -> Sized:
    """w13 and w2 of `count` experts of one GPU (FusedMoE)."""
    scheme = Quant() if upcast or quant.skips(name) else quant
    if quant.kind == "mxfp4":
        width = -(-width // 64) * 64
    up = width * (2 if moe.gated else 1)
    for out, inn in ((up, hidden), (hidden, width)):
        for size in scheme.tensors(count, out, inn, e):
            yield "experts", size
        if moe.bias:
            yield "experts", count * out * (FLOAT32 if quant.kind == "mxfp4" and not upcast else e)


def vision_tensors(vision: Vision, e: int, parts: int, text_hidden: int) -> Sized:
    """The vision tower is never quantised; attention and feed-forward are sharded over `parts`."""
    h, inner = vision.hidden, -(-vision.intermediate // parts)
    yield "vision", vision.channels * vision.temporal * vision.patch**2 * h * e
    if vision.positions:
        yield "vision", vocabulary(vision.positions, parts) * h * e
    if vision.rope_rows:
        yield "vision", vision.rope_rows * (h // vision.heads // 2) * FLOAT32
    up = inner * (2 if vision.gated_mlp else 1)
    block = [h, h, h, h, 3 * h * h // parts, 3 * h // parts, h * h // parts, h, up * h, up, h * inner, h]
    for _ in range(vision.depth):
        yield from (("vision", size * e) for size in block)
    if not vision.qwen:
        yield "vision", text_hidden * h * e
        return
    yield "vision", h * e
    wide = h * vision.merge**2
    for _ in range(1 + vision.deepstack):
        yield from (
            ("vision", size * e)
            for size in (h, h, wide * wide // parts, wide // parts, vision.out * wide // parts, vision.out)
        )
