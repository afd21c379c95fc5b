"""Predicted against logged, figure by figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from opsagent_tools.sglang.log import Facts

LIMITS = ("max_total_num_tokens", "max_running_requests", "context_len")
MEMORY = {
    "weights": ("weights end", "used"),
    "pool_end_avail": ("pools end", "avail"),
    "free": ("weights begin", "avail"),
}
"""Figures of a plan (GiB on a card), and the moment of the log that shows them."""


class Compared(BaseModel):
    """One figure. `error` is (logged - predicted) / predicted; `inside` says whether it lies in the predicted interval."""

    name: str
    predicted: float
    logged: float
    error: float
    inside: bool | None = None
    unit: str = ""


def compare(prediction: Mapping[str, Any], facts: Facts) -> list[Compared]:
    """`prediction` is the result of estimate_vram or its `proposal`; figures that either side lacks are left out."""
    rows = []
    limits = prediction.get("limits") or {}
    intervals = dict(prediction.get("intervals") or {})
    if isinstance(prediction.get("interval"), list):
        intervals.setdefault("max_total_num_tokens", prediction["interval"])
    for name in LIMITS:
        logged = getattr(facts.limits, name)
        if isinstance(limits.get(name), int | float) and logged is not None:
            rows.append(_row(name, float(limits[name]), float(logged), intervals.get(name), ""))
    for name, (at, kind) in MEMORY.items():
        predicted = (prediction.get("per_gpu_gib") or {}).get(name)
        figures = [m.used_gib if kind == "used" else m.avail_gib for m in facts.memory if m.at == at]
        known = [figure for figure in figures if figure is not None]
        if isinstance(predicted, int | float) and known:
            rows.append(_row(name, float(predicted), known[0], None, "GiB"))
    return rows


def _row(name: str, predicted: float, logged: float, interval: Any, unit: str) -> Compared:
    inside = None
    if isinstance(interval, list | tuple) and len(interval) == 2:
        inside = float(interval[0]) <= logged <= float(interval[1])
    error = (logged - predicted) / predicted if predicted else 0.0
    return Compared(name=name, predicted=predicted, logged=logged, error=round(error, 5), inside=inside, unit=unit)
