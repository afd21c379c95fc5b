"""Weights that are replaced while a model is loaded, and what that leaves behind in the allocator.

Three things are done after the modules are built (layers/quantization/*.py `process_weights_after_loading` and
models/deepseek_common/deepseek_weight_loader.py of 0.5.11): bf16 weights are quantised online, 4-bit weights are
repacked for
Marlin, and latent attention gets a second copy of its up projection, dequantised to bf16. New tensors land in pieces
of memory
that old ones leave, and a segment in which one piece is used is not given back.
"""

from __future__ import annotations

from collections.abc import Sequence

from opsagent_tools.sglang.allocator import MIB, Block, Heap, reserved
from opsagent_tools.sglang.modelspec import Mla, ModelSpec
from opsagent_tools.sglang.quant import Quant
from opsagent_tools.sglang.state import divide

QUANTISED = frozenset({"attention", "mlp", "experts", "recurrent"})
FLOAT32, BFLOAT16 = 4, 2
SCALE_BLOCK = 128


def loaded_bytes(spec: ModelSpec, quant: Quant, atp: int, tensors: Sequence[tuple[str, int]]) -> int:
    """Bytes from the driver once the model is ready. `tensors` are (part, bytes) as the modules allocate them."""
    if not converts(spec, quant):
        return reserved(size for _part, size in tensors)
    heap = Heap()
    blocks = [heap.take(size) for _part, size in tensors if size > 0]
    sized = [item for item in tensors if item[1] > 0]
    if not quant.from_checkpoint:
        quantise(heap, sized, blocks)
    elif quant.kind == "int4":
        repack(heap, sized, blocks)
    if spec.mla is not None:
        copy_projections(heap, spec, spec.mla, quant, atp)
    return heap.reserved()


def converts(spec: ModelSpec, quant: Quant) -> bool:
    """Whether anything is replaced or added after the modules are built."""
    return spec.mla is not None or quant.kind == "int4" or not quant.from_checkpoint


def quantise(heap: Heap, tensors: Sequence[tuple[str, int]], blocks: Sequence[Block]) -> None:
    """Online fp8: each bf16 weight is replaced by one of half the size and its scales."""
    for (part, size), block in zip(tensors, blocks, strict=True):
        if part in QUANTISED and size > MIB:
            heap.take(size // 2)
            heap.take(16 * 1024)
            heap.give(block)


def repack(heap: Heap, tensors: Sequence[tuple[str, int]], blocks: Sequence[Block]) -> None:
    """Marlin: each packed weight and its scales are written anew, the old ones freed."""
    for (part, size), block in zip(tensors, blocks, strict=True):
        if part in QUANTISED and size > MIB:
            heap.take(size)
            heap.give(block)


def copy_projections(heap: Heap, spec: ModelSpec, mla: Mla, quant: Quant, atp: int) -> None:
    """w_kc and w_vc of every layer; from fp8 blocks the projection is dequantised first, through float32."""
    heads = divide(spec.heads, atp)
    rows = heads * (mla.nope + mla.v)
    old: Block | None = None
    for _ in range(spec.count("full", "swa", "both")):
        if quant.kind == "fp8-block":
            dequantised = _dequantise(heap, rows, mla.kv_lora_rank)
            if old is not None:
                heap.give(old)
            old = dequantised
        for width in (mla.nope, mla.v):
            heap.take(heads * width * mla.kv_lora_rank * BFLOAT16)
    if old is not None:
        heap.give(old)


def _dequantise(heap: Heap, rows: int, columns: int) -> Block:
    """One projection from fp8 to bf16; what it needs on the way is freed again (fp8_utils.py `block_quant_dequant`)."""
    narrow = heap.take(rows * -(-columns // SCALE_BLOCK) * FLOAT32)
    scales = heap.take(rows * columns * FLOAT32)
    heap.give(narrow)
    wide = heap.take(rows * columns * FLOAT32)
    product = heap.take(rows * columns * FLOAT32)
    heap.give(wide)
    result = heap.take(rows * columns * BFLOAT16)
    heap.give(product)
    heap.give(scales)
    return result
