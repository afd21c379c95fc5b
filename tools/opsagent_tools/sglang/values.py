"""The server arguments that were given, and how the planner reads one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsagent_tools.sglang.modelspec import ModelSpec

Values = Mapping[str, Any]
"""Server arguments that were given, by argparse destination (`max_running_requests`)."""

MM_OFF_BY_DEFAULT = frozenset(
    {"Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration", "Step3VLForConditionalGeneration"}
)


def integer(values: Values, name: str, default: int) -> int:
    value = values.get(name)
    return default if value is None else int(value)


def is_multimodal(values: Values, spec: ModelSpec) -> bool:
    """SGLang's `ModelConfig.is_multimodal`: three architectures are text-only unless --enable-multimodal."""
    enabled = values.get("enable_multimodal")
    if enabled is None:
        enabled = spec.architecture not in MM_OFF_BY_DEFAULT
    return bool(enabled) and (spec.multimodal or spec.encoder_subconfig)
