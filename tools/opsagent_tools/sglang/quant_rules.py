"""Quantised shards that SGLang refuses: cards without the kernels, and slices that no quantisation block divides.

Source: model_loader/loader.py:247 (capability), layers/quantization/fp8.py:341 and :866, marlin_utils.py:740 of 0.5.11.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsagent_tools.sglang.case import Case, Failed, quant_of, shards_of
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.quant import Quant
from opsagent_tools.sglang.settings import Settings
from opsagent_tools.sglang.values import Values
from opsagent_tools.sglang.weights import Shards, kv_heads_per_gpu

LEAST_CAPABILITY = {
    "fp8": 80, "awq": 80, "gptq": 80, "modelopt_fp8": 89, "modelopt_fp4": 100, "modelopt": 89, "mxfp4": 80, "w8a8_int8": 75,
    "w8a8_fp8": 89, "w4afp8": 90, "petit_nvfp4": 90, "compressed-tensors": 70, "bitsandbytes": 70, "moe_wna16": 70,
}  # fmt: skip
"""`get_min_capability` of each method, compute capability times ten."""
MARLIN_ROWS, MARLIN_COLUMNS = 64, 128


def quant_refusal(case: Case, values: Values, settings: Settings) -> Failed | None:
    """The first reason why this card or this split cannot hold the quantised weights."""
    quant = quant_of(case, values)
    if quant.kind == "none":
        return None
    method = "modelopt_fp4" if quant.kind == "nvfp4" and quant.method == "modelopt" else quant.method
    sm, least = case.gpu.sm, LEAST_CAPABILITY.get(method)
    if sm is not None and least is not None and sm[0] * 10 + sm[1] < least:
        words = (
            f"ValueError: The quantization method {method} is not supported for the current GPU. "
            f"Minimum capability: {least}. "
            f"Current capability: {sm[0] * 10 + sm[1]}."
        )
        return Failed("arg-rejected", "quant-format-gpu-unsupported", words, "a checkpoint in another format")
    words = next(_undivided(case.spec, quant, shards_of(case.spec, settings)), "")
    if words:
        fix = (
            "--tp with a divisor that keeps whole blocks"
            if settings.tp > 1
            else "a checkpoint that leaves these layers unquantised"
        )
        return Failed("arg-rejected", "tp-quant-shard-not-divisible", words, fix)
    return None


def _undivided(spec: ModelSpec, quant: Quant, shards: Shards) -> Iterator[str]:
    for name, rows, columns, merged in _slices(spec, shards):
        if quant.skips(name):
            continue
        if quant.kind == "fp8-block":
            block_n, block_k = quant.block
            split = shards.tp > 1
            if split and not merged and columns % block_k:
                yield (
                    f"ValueError: Weight input_size_per_partition = {columns} is not divisible by weight quantization "
                    f"block_k = {block_k}."
                )
            for part in rows if merged else ():
                if part % block_n:
                    yield (
                        f"ValueError: Weight output_partition_size = {part} is not divisible by weight quantization "
                        f"block_n = {block_n}."
                    )
        elif quant.kind == "int4" and "experts" not in name:
            if sum(rows) % MARLIN_ROWS:
                yield (
                    f"ValueError: Weight output_size_per_partition = {sum(rows)} is not divisible "
                    f"by min_thread_n = {MARLIN_ROWS}."
                )
            if columns % MARLIN_COLUMNS:
                yield (
                    f"ValueError: Weight input_size_per_partition = {columns} is not divisible by "
                    f"min_thread_k = {MARLIN_COLUMNS}."
                )


def _slices(spec: ModelSpec, shards: Shards) -> Iterator[tuple[str, list[int], int, bool]]:
    """(name, rows of each merged part, columns, merged) of the layers of each kind, on one GPU."""
    first = {layer.mixer: index for index, layer in reversed(list(enumerate(spec.layers)))}
    hidden = spec.hidden
    full = first.get("full", first.get("swa", first.get("both")))
    if full is not None and spec.mla is None:
        head, atp = spec.head_dim, shards.atp
        q = spec.heads // atp * head * (2 if spec.output_gate else 1)
        kv = kv_heads_per_gpu(spec.kv_heads, atp) * head
        yield f"model.layers.{full}.self_attn.q_proj", [q, kv, kv], hidden, True
        yield f"model.layers.{full}.self_attn.o_proj", [hidden], spec.heads // atp * spec.v_head_dim, False
    linear = first.get("linear")
    if linear is not None and spec.linear is not None and spec.linear.kind == "gdn":
        part = spec.linear
        keys, inner, heads = part.groups * part.state // shards.atp, part.inner // shards.atp, part.heads // shards.atp
        yield f"model.layers.{linear}.linear_attn.in_proj_qkvz", [keys, keys, inner, inner], hidden, True
        yield f"model.layers.{linear}.linear_attn.in_proj_ba", [heads, heads], hidden, True
        yield f"model.layers.{linear}.linear_attn.out_proj", [hidden], inner, False
    kinds = {layer.mlp: index for index, layer in reversed(list(enumerate(spec.layers)))}
    if "dense" in kinds:
        width = spec.intermediate // shards.dense
        yield f"model.layers.{kinds['dense']}.mlp.gate_proj", [width, width], hidden, True
        yield f"model.layers.{kinds['dense']}.mlp.down_proj", [hidden], width, False
    if "moe" in kinds and spec.moe is not None:
        width = spec.moe.width // shards.moe_tp
        yield f"model.layers.{kinds['moe']}.mlp.experts", [width, width], hidden, True
