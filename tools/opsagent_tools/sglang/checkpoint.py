"""Real weight files: what the headers say of the bytes of each part, and the weights on a GPU that follow from them.

The configuration gives the shapes that SGLang allocates; headers show what a checkpoint really stores (which layers
stayed in bf16,
how wide the scales are). Where both agree the shapes win, for they know padding and replication; where they differ
the headers do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

AGREE = 0.003
"""Parts that differ by less than this fraction are taken from the configuration."""
FLOATS = frozenset({"F32", "F16", "BF16"})
PARTS: tuple[tuple[str, str], ...] = (
    ("draft", r"^(mtp|nextn|model\.mtp)\b|\bmtp\.|eh_proj|enorm|hnorm|shared_head"),
    ("vision", r"visual|vision|image_newline|multi_modal|mm_projector|audio"),
    ("embedding", r"embed_tokens|word_embeddings|\bwte\b"),
    ("head", r"lm_head|output_layer"),
    ("norms", r"norm\d*\.weight$|layernorm|\bnorm\b"),
    ("experts", r"experts?\b|shared_expert|\bgate\.(weight|e_score)|router|block_sparse_moe"),
    ("recurrent", r"linear_attn|mamba|mixer\.(in_proj|out_proj|conv1d|A_log|D|dt_bias)|\bconv\b|conv1d|A_log|dt_bias"),
    ("attention", r"self_attn|attention|attn|[qkvo]_proj|qkv"),
    ("mlp", r"mlp|feed_forward|ffn|(gate|up|down)_proj|fc[12]"),
)
_PARTS = tuple((part, re.compile(pattern)) for part, pattern in PARTS)


class CheckpointFacts(BaseModel):
    """Read from the files themselves. `bytes_by_part` is from the safetensors headers, in bytes as SGLang would hold
    them.
    """

    model_config = ConfigDict(extra="forbid")

    files: int = 0
    total_bytes: int = 0
    """Sum of all tensors; the index's figure when no header could be read."""
    tensors: int = 0
    bytes_by_part: dict[str, int] = Field(default_factory=dict)
    bad: dict[str, str] = Field(default_factory=dict)
    """File → `missing`, `truncated`, `pointer` or `damaged`."""
    complete: bool | None = None
    """Every promised file is there and as long as its header says; null when there are no weight files at all."""


def part_of(name: str) -> str:
    """Which part of the model a tensor belongs to, by its name."""
    return next((part for part, pattern in _PARTS if pattern.search(name)), "other")


def facts_of(answer: Mapping[str, Any], dtype_bytes: int = 2, mtp_layer: int | None = None) -> CheckpointFacts:
    """From the probe's answer (probes/model_files.py). Floats that SGLang casts on loading count with the model's width."""
    shards = answer.get("shards") or []
    bad = {str(shard["name"]): str(shard["state"]) for shard in shards if shard["state"]}
    parts: dict[str, int] = {}
    for group in answer.get("groups") or []:
        part = part_of(str(group["name"]))
        cast = group["dtype"] in FLOATS and "scale" not in group["name"]
        size = int(group["elements"]) * dtype_bytes if cast else int(group["bytes"])
        parts[part] = parts.get(part, 0) + size
    index = answer.get("index") or {}
    return CheckpointFacts(
        files=len(shards),
        total_bytes=int(answer.get("bytes") or index.get("total_size") or 0),
        tensors=int(answer.get("tensors") or 0),
        bytes_by_part=parts if not bad else {},
        bad=bad,
        complete=(not bad and not answer.get("unfinished")) if shards else None,
    )


def checkpoint_weights(facts: CheckpointFacts, parts: Mapping[str, int], whole: Mapping[str, int]) -> dict[str, int]:
    """Weights by part on one GPU. `parts` are the configuration's on that GPU, `whole` the same on a single one."""
    result = dict(parts)
    change = 0
    for part, size in whole.items():
        seen = facts.bytes_by_part.get(part, 0)
        if part in ("total", "rope", "norms") or not seen or not size:
            continue
        if abs(seen - size) > AGREE * size + (1 << 20):
            result[part] = int(parts.get(part, 0) * seen / size)
            change += result[part] - parts.get(part, 0)
    result["total"] = parts["total"] + change
    return result


def half_downloaded(facts: CheckpointFacts) -> str:
    """One clear sentence about weight files that are not as they should be."""
    by_state: dict[str, list[str]] = {}
    for name, state in facts.bad.items():
        by_state.setdefault(state, []).append(name)
    words = [f"{len(names)} {state} ({names[0]}{' …' if len(names) > 1 else ''})" for state, names in by_state.items()]
    return f"half downloaded: of {facts.files} weight files {', '.join(words)}"
