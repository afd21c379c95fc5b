"""The flags after `--`, as SGLang's own parser would read them, and its refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.sglang.case import Case, Failed


@dataclass(frozen=True, slots=True)
class Arguments:
    """Values by destination, what was refused, and whether the refusal leaves nothing to compute."""

    flags: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    refused: Failed | None = None
    unknown: Failed | None = None
    """An option that this version does not have, or a value that it cannot read: nothing can be computed."""
    dropped: tuple[str, ...] = ()


ALIASES = {
    "tp": "tp_size", "tensor_parallel_size": "tp_size", "dp": "dp_size", "data_parallel_size": "dp_size", "pp": "pp_size",
    "pipeline_parallel_size": "pp_size", "ep": "ep_size", "expert_parallel_size": "ep_size", "speculative_algo": "speculative_algorithm",
}  # fmt: skip


def read_arguments(flags: list[str], case: Case) -> Arguments:
    """A first reading: `--name value`, `--name=value`, switches."""
    values: dict[str, Any] = {}
    i = 0
    while i < len(flags):
        name, equal, value = flags[i].partition("=")
        key = name.lstrip("-").replace("-", "_")
        key = ALIASES.get(key, key)
        i += 1
        if not equal and i < len(flags) and not flags[i].startswith("--"):
            value, i = flags[i], i + 1
        elif not equal:
            values[key] = True
            continue
        try:
            values[key] = int(value)
        except ValueError:
            try:
                values[key] = float(value)
            except ValueError:
                values[key] = value
    return Arguments(tuple(flags), values, _refused(values, case))


def _refused(values: Mapping[str, Any], case: Case) -> Failed | None:
    spec = case.spec
    strategy = values.get("mamba_scheduler_strategy", "auto")
    if (
        spec.is_hybrid
        and values.get("speculative_algorithm")
        and strategy in ("auto", "no_buffer")
        and not values.get("disable_radix_cache")
        and not case.rules.extra_buffer_default
    ):
        words = (
            f"ValueError: Speculative decoding for {spec.architecture} is not compatible with radix cache when using "
            "--mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use "
            "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
        )
        return Failed("arg-rejected", "spec-needs-extra-buffer", words, "--mamba-scheduler-strategy extra_buffer")
    if spec.architecture == "GraniteMoeHybridForCausalLM" and values.get("attention_backend") == "triton":
        if spec.layers[0].mixer == "linear":
            full = [index for index, layer in enumerate(spec.layers) if layer.mixer == "full"]
            words = f"ValueError: layer_id=0 not in full attention layers: dict_keys({full})"
            return Failed("arg-rejected", "attn-backend-model-unsupported", words, "--attention-backend flashinfer")
    if spec.architecture == "NemotronHForCausalLM" and values.get("attention_backend") == "triton":
        words = (
            "AssertionError: NemotronHForCausalLM does not support triton attention backend,as the first layer might not be an "
            "attention layer"
        )
        return Failed("arg-rejected", "attn-backend-model-unsupported", words, "--attention-backend flashinfer")
    return None


def destination(token: str) -> str:
    """`--tp-size=2` → `tp_size`."""
    key = token.partition("=")[0].lstrip("-").replace("-", "_")
    return ALIASES.get(key, key)


def apply_change(flags: list[str], change: Mapping[str, str | None]) -> list[str]:
    """The flags with a change: a value replaces in place or is added at the end, None removes, '' is a switch."""
    todo = {destination(flag): (flag, value) for flag, value in change.items()}
    out: list[str] = []
    i = 0
    while i < len(flags):
        token = flags[i]
        i += 1
        values = []
        if "=" not in token:
            while i < len(flags) and not flags[i].startswith("--"):
                values.append(flags[i])
                i += 1
        name = destination(token)
        if name not in todo:
            out += [token, *values]
            continue
        flag, value = todo[name]
        if value is not None and flag not in out:
            out += [flag, value] if value else [flag]
        todo[name] = (flag, None)
    for flag, value in todo.values():
        if value is not None:
            out += [flag, value] if value else [flag]
    return out
