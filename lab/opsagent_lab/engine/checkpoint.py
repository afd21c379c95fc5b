"""The files of a checkpoint as they lie on the hub: tensor names, shapes and sizes, cut into shards, with an index.

Qwen3.6-27B comes out with the real one's 1,199 tensors and 55,562,855,904 bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opsagent_lab.engine.shape import Shape, Vision

Tensor = tuple[str, str, tuple[int, ...]]
"""Name, dtype as safetensors writes it, shape."""
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4}


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One safetensors file: its name, whole size, header bytes and tensors."""

    name: str
    size: int
    header: bytes
    tensors: tuple[Tensor, ...]

    @property
    def sha256(self) -> str:
        """A stand-in for the hash of the content, fixed by the header."""
        return hashlib.sha256(self.header + self.name.encode()).hexdigest()


def tensor_bytes(tensor: Tensor) -> int:
    return _BYTES[tensor[1]] * math.prod(tensor[2])


def _linear(name: str, shape: Shape, rows: int, columns: int) -> Iterator[Tensor]:
    if shape.quant == "fp8":
        yield f"{name}.weight", "F8_E4M3", (rows, columns)
        yield f"{name}.weight_scale_inv", "BF16", (-(-rows // 128), -(-columns // 128))
    elif shape.quant in ("awq", "gptq"):
        yield f"{name}.qweight", "I32", (columns, rows // 8)
        yield f"{name}.qzeros", "I32", (columns // 128, rows // 8)
        yield f"{name}.scales", "F16", (columns // 128, rows)
    else:
        yield f"{name}.weight", "BF16", (rows, columns)


def _norm(name: str, size: int) -> Tensor:
    return f"{name}.weight", "BF16", (size,)


def _attention(prefix: str, shape: Shape) -> Iterator[Tensor]:
    h, q = shape.hidden, shape.heads * shape.head_dim
    yield from _linear(f"{prefix}.q_proj", shape, q * (2 if shape.gated_output else 1), h)
    yield from _linear(f"{prefix}.k_proj", shape, shape.kv_heads * shape.head_dim, h)
    yield from _linear(f"{prefix}.v_proj", shape, shape.kv_heads * shape.head_dim, h)
    yield from _linear(f"{prefix}.o_proj", shape, h, q)
    if shape.qk_norm:
        yield _norm(f"{prefix}.q_norm", shape.head_dim)
        yield _norm(f"{prefix}.k_norm", shape.head_dim)


def _recurrent(prefix: str, shape: Shape) -> Iterator[Tensor]:
    lin, h = shape.linear, shape.hidden
    assert lin is not None
    keys, values = lin.key_heads * lin.key_dim, lin.value_heads * lin.value_dim
    merged = shape.architecture == "Qwen3NextForCausalLM"
    if merged:
        yield from _linear(f"{prefix}.in_proj_qkvz", shape, 2 * keys + 2 * values, h)
        yield f"{prefix}.in_proj_ba.weight", "BF16", (2 * lin.value_heads, h)
    else:
        yield from _linear(f"{prefix}.in_proj_qkv", shape, 2 * keys + values, h)
        yield from _linear(f"{prefix}.in_proj_z", shape, values, h)
        yield f"{prefix}.in_proj_b.weight", "BF16", (lin.value_heads, h)
        yield f"{prefix}.in_proj_a.weight", "BF16", (lin.value_heads, h)
    yield f"{prefix}.conv1d.weight", "BF16", (2 * keys + values, 1, lin.kernel)
    yield f"{prefix}.A_log", "BF16", (lin.value_heads,)
    yield f"{prefix}.dt_bias", "BF16", (lin.value_heads,)
    yield f"{prefix}.norm.weight", "BF16", (lin.value_dim,)
    yield from _linear(f"{prefix}.out_proj", shape, h, values)


def _mlp(prefix: str, shape: Shape, width: int) -> Iterator[Tensor]:
    yield from _linear(f"{prefix}.gate_proj", shape, width, shape.hidden)
    yield from _linear(f"{prefix}.up_proj", shape, width, shape.hidden)
    yield from _linear(f"{prefix}.down_proj", shape, shape.hidden, width)


def _layer(prefix: str, shape: Shape, *, attention: bool, dense: bool = False) -> Iterator[Tensor]:
    yield _norm(f"{prefix}.input_layernorm", shape.hidden)
    yield _norm(f"{prefix}.post_attention_layernorm", shape.hidden)
    if attention:
        yield from _attention(f"{prefix}.self_attn", shape)
    else:
        yield from _recurrent(f"{prefix}.linear_attn", shape)
    e = shape.experts
    if e is None or dense:
        yield from _mlp(f"{prefix}.mlp", shape, shape.width)
        return
    yield f"{prefix}.mlp.gate.weight", "BF16", (e.count, shape.hidden)
    for i in range(e.count):
        yield from _mlp(f"{prefix}.mlp.experts.{i}", shape, e.width)
    if e.shared_width:
        yield from _mlp(f"{prefix}.mlp.shared_expert", shape, e.shared_width)
        yield f"{prefix}.mlp.shared_expert_gate.weight", "BF16", (1, shape.hidden)


def _vision(v: Vision, prefix: str) -> Iterator[Tensor]:
    def pair(name: str, rows: int, *columns: int) -> Iterator[Tensor]:
        yield f"{prefix}.{name}.weight", "BF16", (rows, *columns)
        yield f"{prefix}.{name}.bias", "BF16", (rows,)

    h, merged = v.hidden, v.hidden * v.merge**2
    for i in range(v.depth):
        at = f"blocks.{i}"
        yield from pair(f"{at}.norm1", h)
        yield from pair(f"{at}.norm2", h)
        yield from pair(f"{at}.attn.qkv", 3 * h, h)
        yield from pair(f"{at}.attn.proj", h, h)
        yield from pair(f"{at}.mlp.linear_fc1", v.width, h)
        yield from pair(f"{at}.mlp.linear_fc2", h, v.width)
    yield from pair("patch_embed.proj", h, 3, 2, 16, v.patch_elements // (3 * 2 * 16))
    yield f"{prefix}.pos_embed.weight", "BF16", (v.positions, h)
    yield from pair("merger.norm", h)
    yield from pair("merger.linear_fc1", merged, merged)
    yield from pair("merger.linear_fc2", v.out, merged)


def tensors(shape: Shape) -> Iterator[Tensor]:
    """All tensors of a checkpoint, in the order in which they are written."""
    root = "model.language_model" if shape.vision else "model"
    yield f"{root}.embed_tokens.weight", "BF16", (shape.vocab, shape.hidden)
    every = shape.layers // shape.attention_layers if shape.hybrid and shape.attention_layers else 1
    for i in range(shape.layers):
        yield from _layer(f"{root}.layers.{i}", shape, attention=not shape.hybrid or (i + 1) % every == 0)
    yield _norm(f"{root}.norm", shape.hidden)
    if shape.vision:
        yield from _vision(shape.vision, "model.visual")
    if not shape.tied:
        yield "lm_head.weight", "BF16", (shape.vocab, shape.hidden)
    for i in range(shape.draft_layers):
        yield from _layer(f"mtp.layers.{i}", shape, attention=True)
    if shape.draft_layers:
        yield "mtp.fc.weight", "BF16", (shape.hidden, 2 * shape.hidden)
        for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
            yield _norm(f"mtp.{name}", shape.hidden)


def header_of(parts: list[Tensor]) -> bytes:
    """The beginning of a safetensors file: length and JSON with offsets, padded with spaces to 8 bytes."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in parts:
        name, dtype, dims = tensor
        size = tensor_bytes(tensor)
        entries[name] = {"dtype": dtype, "shape": list(dims), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def shards(shape: Shape, count: int) -> list[ShardFile]:
    """The checkpoint in `count` files of about equal size."""
    everything = list(tensors(shape))
    total = sum(map(tensor_bytes, everything))
    groups: list[list[Tensor]] = [[] for _ in range(count)]
    filled = 0
    for tensor in everything:
        groups[min(count - 1, filled * count // total)].append(tensor)
        filled += tensor_bytes(tensor)
    out = []
    for i, group in enumerate(groups, 1):
        header = header_of(group)
        name = "model.safetensors" if count == 1 else f"model-{i:05d}-of-{count:05d}.safetensors"
        out.append(ShardFile(name, len(header) + sum(map(tensor_bytes, group)), header, tuple(group)))
    return out


def index(files: list[ShardFile]) -> dict[str, Any]:
    """model.safetensors.index.json."""
    total = sum(tensor_bytes(t) for f in files for t in f.tensors)
    return {"metadata": {"total_size": total}, "weight_map": {t[0]: f.name for f in files for t in f.tensors}}
