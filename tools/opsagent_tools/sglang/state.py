"""Recurrent state of hybrid models: bytes per slot and per GPU (configs/mamba_utils.py, mem_cache/memory_pool.py)."""

from __future__ import annotations

from dataclasses import dataclass

from opsagent_tools.sglang.modelspec import Linear, ModelSpec

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class Indivisible(Exception):
    """SGLang's `divide` asserts: "X is not divisible by Y"."""

    def __init__(self, numerator: int, denominator: int) -> None:
        super().__init__(f"{numerator} is not divisible by {denominator}")


def divide(numerator: int, denominator: int) -> int:
    if numerator % denominator:
        raise Indivisible(numerator, denominator)
    return numerator // denominator


@dataclass(frozen=True, slots=True)
class StateSize:
    """Bytes of one slot: convolution window and recurrent state, over `layers` layers of one GPU."""

    conv: int
    ssm: int
    layers: int

    @property
    def per_request(self) -> int:
        """SGLang's `mamba_cache_per_req`, in bytes."""
        return (self.conv + self.ssm) * self.layers


def groups_after_split(groups: int, atp: int) -> int:
    """Groups are extended so that each rank has the ones that its heads need (`extra_groups_for_head_shards`)."""
    return groups if groups % atp == 0 else groups + atp - groups


def state_size(spec: ModelSpec, atp: int, *, ssm_dtype: str = "", conv_dtype: str = "bfloat16") -> StateSize | None:
    """Bytes per slot, None for a model without recurrent layers. `atp` is the attention tensor parallel size.

    `ssm_dtype` is --mamba-ssm-dtype or SGLANG_MAMBA_SSM_DTYPE when given; it wins over config.json, then float32.
    Raises Indivisible when the heads or the convolution do not divide by `atp`, as SGLang does.
    """
    linear = spec.linear
    if linear is None:
        return None
    layers = spec.count("linear", "both")
    ssm_bytes = DTYPE_BYTES.get(ssm_dtype or spec.ssm_dtype, 4)
    if spec.architecture == "GraniteMoeHybridForCausalLM":
        ssm_bytes = DTYPE_BYTES.get(ssm_dtype, 4)
    return StateSize(
        _conv_elements(linear, atp) * DTYPE_BYTES.get(conv_dtype, 2), _ssm_elements(linear, atp) * ssm_bytes, layers
    )


def _conv_elements(linear: Linear, atp: int) -> int:
    if linear.kind == "kda":
        return (linear.kernel - 1) * 3 * divide(linear.inner, atp)
    groups = groups_after_split(linear.groups, atp)
    return divide(linear.inner + 2 * groups * linear.state, atp) * (linear.kernel - 1)


def _ssm_elements(linear: Linear, atp: int) -> int:
    if linear.kind == "shortconv":
        return 0
    return divide(linear.heads, atp) * linear.head_dim * linear.state
