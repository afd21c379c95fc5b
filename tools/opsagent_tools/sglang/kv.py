"""What one token costs in the KV pool of one GPU (model_executor/pool_configurator.py)."""

from __future__ import annotations

from dataclasses import dataclass

from opsagent_tools.sglang.allocator import OWN_SEGMENT, segment
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.settings import Settings
from opsagent_tools.sglang.weights import kv_heads_per_gpu

KV_BYTES = {"fp8_e4m3": 1, "fp8_e5m2": 1, "bfloat16": 2, "bf16": 2, "fp4_e2m1": 1}
NSA_BLOCK = 128


@dataclass(frozen=True, slots=True)
class KvPrice:
    """Bytes per token and GPU. `buffers` are (bytes per token, layers, is_swa) of what is really allocated."""

    cell: float
    buffers: tuple[tuple[float, int, bool], ...]
    swa_layers: int = 0
    full_layers: int = 0
    swa_ratio: float = 1.0

    def pool_bytes(self, tokens: int, swa_tokens: int, page: int) -> int:
        """Bytes of all buffers as the driver sees them: each rounds up on its own, small ones share segments."""
        total = 0
        for price, layers, swa in self.buffers:
            size = int(price * ((swa_tokens if swa else tokens) + page))
            total += layers * (segment(size) if size >= OWN_SEGMENT else size)
        return total


def kv_bytes(dtype: str, spec: ModelSpec) -> int:
    return KV_BYTES.get(dtype, spec.dtype_bytes)


def kv_price(spec: ModelSpec, settings: Settings, layers: range) -> KvPrice:
    """The price on the pipeline stage that holds `layers`."""
    kinds = [spec.layers[i].mixer for i in layers]
    full = sum(kind in ("full", "both") for kind in kinds)
    swa = sum(kind == "swa" for kind in kinds)
    e, fp4 = kv_bytes(settings.kv_dtype, spec), settings.kv_dtype == "fp4_e2m1"
    if spec.mla is not None:
        return _mla_price(spec, settings, full + swa, e, fp4)
    k, v = _head_bytes(spec, settings.atp, e)
    if settings.swa_memory and swa:
        return _swa_price(spec, settings, full, swa, e)
    count = full + swa
    cell: float = (k + v) * count
    if fp4:
        heads = kv_heads_per_gpu(spec.kv_heads, settings.atp)
        cell = cell // 2 + heads * spec.head_dim * count * 2 * e // 16
        k, v = k / 2 + k / 16, v / 2 + v / 16
    if spec.is_hybrid:
        v = k
    return KvPrice(cell, ((k, count, False), (v, count, False)), full_layers=count)


def _head_bytes(spec: ModelSpec, atp: int, e: int) -> tuple[float, float]:
    heads = kv_heads_per_gpu(spec.kv_heads, atp)
    return heads * spec.head_dim * e, heads * spec.v_head_dim * e


def _swa_price(spec: ModelSpec, settings: Settings, full: int, swa: int, e: int) -> KvPrice:
    """Two pools: full layers keep every token, sliding-window layers `swa_full_tokens_ratio` of them."""
    k, v = _head_bytes(spec, settings.atp, e)
    heads = kv_heads_per_gpu(spec.swa_kv_heads or spec.kv_heads, settings.atp)
    sk = heads * (spec.swa_head_dim or spec.head_dim) * e
    sv = heads * (spec.swa_v_head_dim or spec.swa_head_dim or spec.head_dim) * e
    cell = (k + v) * full + settings.swa_ratio * (sk + sv) * swa if full else float((sk + sv) * swa)
    buffers = ((sk, swa, True), (sv, swa, True), (k, full, False), (v, full, False))
    return KvPrice(cell, buffers, swa_layers=swa, full_layers=full, swa_ratio=settings.swa_ratio if full else 1.0)


def _mla_price(spec: ModelSpec, settings: Settings, layers: int, e: int, fp4: bool) -> KvPrice:
    """One latent vector per token and layer, the same on every GPU; sparse attention adds an index."""
    mla = spec.mla
    assert mla is not None
    width = mla.kv_lora_rank + mla.rope
    cell = width * layers * e
    real: float = width * e
    if fp4:
        cell = cell // 2 + width // 16 * layers * e
        real = width / 2 + width / 16
    buffers: list[tuple[float, int, bool]] = []
    if mla.index_heads:
        index = mla.index_dim + mla.index_dim // NSA_BLOCK * 4
        cell += index * layers
        if settings.kv_dtype == "fp8_e4m3" and "trtllm" not in settings.attention_backend:
            real = mla.kv_lora_rank + mla.kv_lora_rank // NSA_BLOCK * 4 + mla.rope * 2
        buffers.append((index, layers, False))
    return KvPrice(cell, ((real, layers, False), *buffers), full_layers=layers)
