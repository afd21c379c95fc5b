"""The tensors that one tensor-parallel rank puts on its GPU, in bytes, in the order in which SGLang creates them.

Layouts follow models/qwen3.py, qwen3_moe.py, qwen3_next.py, qwen3_5.py, qwen3_5_mtp.py and qwen3_vl.py of SGLang
0.5.11: q, k and v are one tensor, gate and up are one tensor, experts of a layer are two tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsagent_lab.engine.card import MIB, Card
from opsagent_lab.engine.shape import Shape, Vision

HALF = 2


def _weight(shape: Shape, elements: int) -> Iterator[int]:
    """One weight matrix, in the checkpoint's own precision with its scales."""
    if shape.quant == "fp8":
        yield elements
        yield max(1, elements // (128 * 128)) * 4
    elif shape.quant in ("awq", "gptq", "compressed-tensors") and shape.quant_bits == 4:
        yield elements // 2
        yield elements // 128 * HALF
    else:
        yield elements * HALF


def _attention(shape: Shape, tp: int, *, quantised: bool = True) -> Iterator[int]:
    kv = max(1, shape.kv_heads // tp)
    q = shape.heads // tp * (2 if shape.gated_output else 1)
    rows = (q + 2 * kv) * shape.head_dim
    plain = shape if quantised else _unquantised(shape)
    yield from _weight(plain, rows * shape.hidden)
    yield from _weight(plain, shape.hidden * (shape.heads // tp) * shape.head_dim)
    if shape.qk_norm:
        yield shape.head_dim * HALF
        yield shape.head_dim * HALF


def _unquantised(shape: Shape) -> Shape:
    from dataclasses import replace

    return replace(shape, quant=None)


def _recurrent(shape: Shape, tp: int) -> Iterator[int]:
    lin = shape.linear
    assert lin is not None
    keys, values = lin.key_heads * lin.key_dim, lin.value_heads * lin.value_dim
    yield (2 * keys + values) // tp * lin.kernel * HALF
    yield from _weight(shape, (2 * keys + 2 * values) // tp * shape.hidden)
    yield 2 * lin.value_heads // tp * shape.hidden * HALF
    yield lin.value_heads // tp * 4
    yield lin.value_heads // tp * HALF
    yield lin.value_dim * HALF
    yield from _weight(shape, shape.hidden * values // tp)


def _mlp(shape: Shape, width: int, tp: int) -> Iterator[int]:
    yield from _weight(shape, 2 * width // tp * shape.hidden)
    yield from _weight(shape, shape.hidden * width // tp)


def _feed_forward(shape: Shape, tp: int) -> Iterator[int]:
    if shape.experts is None:
        yield from _mlp(shape, shape.width, tp)
        return
    e = shape.experts
    yield e.count * shape.hidden * HALF
    yield from _weight(shape, e.count * (2 * e.width // tp) * shape.hidden)
    yield from _weight(shape, e.count * shape.hidden * (e.width // tp))
    if e.shared_width:
        yield from _mlp(shape, e.shared_width, tp)
        yield shape.hidden * HALF


def _vocabulary(shape: Shape, tp: int) -> int:
    padded = -(-shape.vocab // 64) * 64
    return padded // tp * shape.hidden * HALF


def _layer(shape: Shape, tp: int, *, attention: bool) -> Iterator[int]:
    yield from _attention(shape, tp) if attention else _recurrent(shape, tp)
    yield from _feed_forward(shape, tp)
    yield shape.hidden * HALF
    yield shape.hidden * HALF


def _vision(v: Vision, tp: int) -> Iterator[int]:
    yield v.patch_elements * v.hidden * HALF
    yield v.positions // tp * v.hidden * HALF
    for _ in range(v.depth):
        yield 3 * v.hidden // tp * v.hidden * HALF
        yield v.hidden * v.hidden // tp * HALF
        yield v.width // tp * v.hidden * HALF
        yield v.hidden * v.width // tp * HALF
        for _ in range(6):
            yield v.hidden * HALF
    merged = v.hidden * v.merge**2
    yield merged // tp * merged * HALF
    yield v.out * merged // tp * HALF
    yield 8192 * (v.hidden // v.heads // 2) * 4


def rope_table(shape: Shape) -> int:
    """Bytes of the one shared cos/sin table, float32."""
    return shape.max_context * shape.rotary_dim * 4


def target(shape: Shape, tp: int) -> Iterator[int]:
    """Tensors of the served model on one of `tp` ranks."""
    if shape.vision:
        yield from _vision(shape.vision, tp)
    yield _vocabulary(shape, tp)
    yield rope_table(shape)
    every = shape.layers // shape.attention_layers if shape.hybrid and shape.attention_layers else 1
    for i in range(shape.layers):
        yield from _layer(shape, tp, attention=not shape.hybrid or (i + 1) % every == 0)
    yield shape.hidden * HALF
    if not shape.tied:
        yield _vocabulary(shape, tp)


def draft(shape: Shape, tp: int) -> Iterator[int]:
    """Tensors of the built-in draft model (MTP) as it is first built, its own embedding and head included."""
    yield 2 * shape.hidden * shape.hidden * HALF
    yield _vocabulary(shape, tp)
    for _ in range(shape.draft_layers):
        yield from _layer(_unquantised(shape) if shape.quant != "fp8" else shape, tp, attention=True)
    for _ in range(3):
        yield shape.hidden * HALF
    if not shape.tied:
        yield _vocabulary(shape, tp)


def draft_shared(shape: Shape, tp: int) -> int:
    """Bytes given back once the draft uses the target's embedding and head."""
    return _vocabulary(shape, tp) * (1 if shape.tied else 2)


def regrow_rope(shape: Shape, card: Card, *, context: int, steps: int, draft_tokens: int) -> None:
    """Rope tables grow after "Load weight end" and before the pools are sized (utils/common.py:3915 of 0.5.11).

    The vision tower's table (8192 rows) grows too; a table of up to 10 MiB gets a fresh 20 MiB segment, because the
    holes that loading left are too small for it.
    """
    need = -(-(context + 2 * steps * draft_tokens + 256) // 128) * 128
    if shape.vision:
        columns = shape.vision.hidden // shape.vision.heads // 2
        if need > 8192:
            grown = need * columns * 4
            card.take(20 * MIB if grown <= 10 * MIB else -(-grown // (2 * MIB)) * 2 * MIB)
    old = rope_table(shape)
    if need > shape.max_context and old >= 10 * MIB:
        card.take(-(-need * shape.rotary_dim * 4 // (2 * MIB)) * 2 * MIB)
        card.give(-(-old // (2 * MIB)) * 2 * MIB)
