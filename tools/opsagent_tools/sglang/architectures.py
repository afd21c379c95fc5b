"""Which model classes a version of SGLang has, from its sources: `data/architectures.json`, made from the wheels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from opsagent_tools.sglang.arithmetic import ARITHMETIC, release


@dataclass(frozen=True, slots=True)
class Known:
    """What one version knows of a model: its own class, only the transformers fallback, or not even the model type."""

    own: bool
    fallback: bool
    model_type: bool
    since: str
    """First modelled version that has its own class ('' if none has)."""


@cache
def _data() -> dict[str, dict[str, list[str]]]:
    raw: dict[str, Any] = json.loads(
        files("opsagent_tools.sglang").joinpath("data/architectures.json").read_text("utf-8")
    )
    return {key: raw[key] for key in ("sglang", "model_types", "transformers")}


@cache
def _versions(kind: str) -> dict[str, tuple[str, ...]]:
    """Name → modelled versions that have it. A single version as key means: from that one on."""
    order = sorted(ARITHMETIC, key=release)
    found: dict[str, tuple[str, ...]] = {}
    for key, names in _data()[kind].items():
        versions = tuple(key.split(",")) if "," in key else tuple(order[order.index(key) :])
        found.update(dict.fromkeys(names, versions))
    return found


def known(architecture: str, model_type: str, version: str) -> Known:
    """What `version` (a modelled one) knows of this architecture."""
    own = _versions("sglang").get(architecture, ())
    fallback = _versions("transformers").get(architecture, ())
    types = _versions("model_types").get(model_type, ())
    return Known(version in own, version in fallback, version in types, own[0] if own else "")


def least_version(architecture: str) -> str:
    """The oldest modelled SGLang that has this model class, '' when none has."""
    own = _versions("sglang").get(architecture, ())
    return own[0] if own else ""
