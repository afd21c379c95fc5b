"""Bytes of a quantised weight, and which layers stay unquantised (layers/quantization/*.py of SGLang 0.5.11)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsagent_tools.sglang.modelspec import Config

ALIASES = {
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "marlin": "gptq",
    "moe_wna16": "awq",
    "auto-round": "gptq",
    "compressed_tensors": "compressed-tensors",
    "fbgemm_fp8": "fp8",
    "w8a8_fp8": "fp8-channel",
    "modelopt_fp8": "fp8-tensor",
    "petit_nvfp4": "modelopt_fp4",
}


@dataclass(frozen=True, slots=True)
class Quant:
    """One quantisation scheme: `kind` names the layout, `ignored` the modules that keep the model's dtype."""

    kind: str = "none"
    """`none`, `fp8-block`, `fp8-tensor`, `fp8-channel`, `int4` (awq, gptq), `int8`, `nvfp4`, `mxfp4`, `unknown`."""
    method: str = ""
    """The name that SGLang prints (`fp8`, `awq_marlin` …)."""
    group: int = 128
    zero_points: bool = False
    block: tuple[int, int] = (128, 128)
    ignored: tuple[str, ...] = ()
    index_tensors: bool = False
    """GPTQ keeps zero points and, for experts, the order of groups (layers/quantization/gptq.py)."""
    from_checkpoint: bool = True
    kv_fp8: bool = False
    """The checkpoint says that KV is kept in fp8 (`kv_cache_quant_algo`)."""

    def skips(self, name: str) -> bool:
        """Whether module `name` (`model.layers.3.mlp.gate_proj`) keeps the model's dtype."""
        return any(_matches(pattern, other) for other in spellings(name) for pattern in self.ignored)

    def linear(self, out: int, inn: int, dtype: int) -> list[int]:
        """Bytes of every tensor that a linear layer of `out` × `inn` keeps on the GPU."""
        return self.tensors(1, out, inn, dtype)

    def tensors(self, count: int, out: int, inn: int, dtype: int) -> list[int]:
        """The same for `count` stacked matrices (experts)."""
        weights = count * out * inn
        if self.kind == "none" or self.kind == "unknown":
            return [weights * dtype]
        if self.kind == "fp8-block":
            rows, columns = self.block
            return [weights, count * -(-out // rows) * -(-inn // columns) * 4]
        if self.kind == "fp8-tensor":
            return [weights, 4 * count]
        if self.kind in ("fp8-channel", "int8"):
            return [weights, count * out * 4]
        if self.kind == "int4":
            groups = -(-inn // self.group) if self.group > 0 else 1
            zeros = [count * groups * out // 2] if self.zero_points or self.index_tensors else []
            if self.index_tensors and count > 1:
                zeros = [count * groups * out // 8 * dtype, count * inn * 4, count * inn * 4]
            return [weights // 2, count * groups * out * dtype, *zeros]
        if self.kind == "nvfp4":
            scales = count * (-(-out // 128) * 128) * (-(-(inn // 16) // 4) * 4)
            return [weights // 2, scales, 4 * count, 4 * count]
        return [weights // 2, weights // 32]


def read_quant(config: Config, flag: str | None = None) -> Quant:
    """The scheme of a checkpoint (`quantization_config`), or of --quantization on an unquantised one."""
    method = str(config.get("quant_method") or "").lower()
    if not method and config.get("quant_algo"):
        method = "modelopt"
    if not config and flag and flag != "unquant":
        return _online(flag)
    if not method:
        return Quant()
    ignored = _ignored(config)
    kv_fp8 = str(config.get("kv_cache_quant_algo") or "").upper() == "FP8" or bool(config.get("kv_cache_scheme"))
    if method == "modelopt":
        algo = str(config.get("quant_algo") or (config.get("quantization") or {}).get("quant_algo") or "").upper()
        method = "modelopt_fp4" if "FP4" in algo else "modelopt_fp8"
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed(config, ignored, method, kv_fp8)
    kind = ALIASES.get(method, method)
    if kind == "fp8":
        block = config.get("weight_block_size")
        if isinstance(block, Sequence) and len(block) == 2:
            return Quant("fp8-block", method, block=(int(block[0]), int(block[1])), ignored=ignored, kv_fp8=kv_fp8)
        return Quant("fp8-tensor", method, ignored=ignored, kv_fp8=kv_fp8)
    if kind in ("awq", "gptq"):
        bits = int(config.get("bits") or config.get("w_bit") or 4)
        group = int(config.get("group_size") or config.get("q_group_size") or 128)
        if group == 0 or group < -1:
            raise ValueError(f"group_size is {group}")
        zero = bool(config.get("zero_point", kind == "awq")) if kind == "awq" else not bool(config.get("sym", True))
        layout = "int4" if bits == 4 else "int8"
        return Quant(layout, method, group=group, zero_points=zero, ignored=ignored, index_tensors=kind == "gptq")
    layouts = {
        "modelopt_fp4": "nvfp4",
        "mxfp4": "mxfp4",
        "fp8-tensor": "fp8-tensor",
        "fp8-channel": "fp8-channel",
        "w8a8_int8": "int8",
        "bitsandbytes": "int4",
    }
    return Quant(layouts.get(kind, "unknown"), method, ignored=ignored, kv_fp8=kv_fp8)


def _online(flag: str) -> Quant:
    """--quantization on a bf16 checkpoint: weights are quantised while loading; nothing is ignored but what SGLang skips."""
    kinds = {
        "fp8": "fp8-channel",
        "w8a8_fp8": "fp8-channel",
        "w8a8_int8": "int8",
        "bitsandbytes": "int4",
        "mxfp8": "fp8-tensor",
    }
    return Quant(kinds.get(flag, "unknown"), flag, from_checkpoint=False, group=64)


def _compressed(config: Config, ignored: tuple[str, ...], method: str, kv_fp8: bool) -> Quant:
    groups = config.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights: Any = first.get("weights") if isinstance(first, Mapping) else None
    weights = weights if isinstance(weights, Mapping) else {}
    bits, kind, strategy = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
    group = int(weights.get("group_size") or 128)
    if bits == 4 and kind == "float":
        return Quant("nvfp4", method, ignored=ignored, kv_fp8=kv_fp8)
    if bits == 4:
        return Quant("int4", method, group=group, ignored=ignored, zero_points=not weights.get("symmetric", True))
    if bits == 8 and kind == "float":
        if strategy == "block":
            return Quant("fp8-block", method, ignored=ignored, kv_fp8=kv_fp8)
        layout = "fp8-channel" if strategy == "channel" else "fp8-tensor"
        return Quant(layout, method, ignored=ignored, kv_fp8=kv_fp8)
    return Quant("int8" if bits == 8 else "unknown", method, ignored=ignored, kv_fp8=kv_fp8)


def _ignored(config: Config) -> tuple[str, ...]:
    names: list[str] = []
    for key in ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules"):
        value = config.get(key)
        if isinstance(value, Sequence) and not isinstance(value, str):
            names.extend(str(item) for item in value)
    return tuple(names)


FUSED = {
    "q_proj": ("qkv_proj",),
    "gate_proj": ("gate_up_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "q_a_proj": ("fused_qkv_a_proj_with_mqa",),
}
"""What a checkpoint calls the parts of a layer that SGLang fuses."""


def spellings(name: str) -> list[str]:
    """The names under which an ignore list may mean this module: parts of fused layers, and the prefixes of
    multimodal models.
    """
    stem, _, last = name.rpartition(".")
    tails = (last, *FUSED.get(last, ()))
    bare = stem.removeprefix("model.")
    prefixes = (stem, bare, f"model.language_model.{bare}", f"language_model.model.{bare}", f"language_model.{bare}")
    return [f"{prefix}.{tail}" for prefix in prefixes for tail in tails]


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], name) is not None
        except re.error:
            return False
    if "*" in pattern:
        return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None
    return pattern == name or f".{pattern}." in f".{name}."
