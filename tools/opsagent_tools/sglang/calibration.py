"""What earlier launches on one host taught: predicted against logged, kept by SGLang version, used for the next prediction.

A host's history holds, under `planner`, a list of observations: one per launch, each the differences (logged minus
predicted, GiB) of
the lines that both have. The correction is their median, so that one odd launch does not bend the next prediction.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEPT = 20
"""Observations that are kept per host."""
OBSERVED = ("free", "weights", "graphs", "pool_end_avail")
LIMIT_GIB = 4.0
"""A difference beyond this is no calibration but another launch (another process on the card, another model)."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Corrections in GiB, added to the prediction. `launches` is how many logs they rest on."""

    free_gib: float = 0.0
    """Free memory at load begin, when it has to be estimated."""
    weights_gib: float = 0.0
    loss_gib: float = 0.0
    """What disappears between the weights and the pools besides what is modelled."""
    graphs_gib: float = 0.0
    launches: int = 0

    def text(self) -> str:
        """In words, '' when nothing was learned."""
        if not self.launches:
            return ""
        parts = [f"{value:+.2f} GiB {name}" for name, value in self.named() if abs(value) >= 0.005]
        said = f": {', '.join(parts)}" if parts else ": the prediction needed no correction"
        return f"corrected by {self.launches} launch{'es' if self.launches > 1 else ''} on this host{said}"

    def corrections(self) -> dict[str, float]:
        """What is added to the prediction, by the name of the term in `per_gpu_gib`."""
        return {name: value for name, value in self.named() if value} if self.launches else {}

    def named(self) -> list[tuple[str, float]]:
        return [
            ("free", self.free_gib), ("weights", self.weights_gib), ("pool_end_avail", -self.loss_gib),
            ("graphs", self.graphs_gib),
        ]  # fmt: skip


NO_CALIBRATION = Calibration()


def observe(plan: Mapping[str, Any], logged: Mapping[str, Any]) -> dict[str, Any]:
    """One observation. `plan` is a plan as JSON, `logged` what the log shows, GiB per GPU.

    Keys of `logged`: free, weights, pool_end_avail, graphs; those that either side lacks are left out. What earlier
    launches had
    corrected is taken out again, so that observations can be compared.
    """
    predicted, corrected = plan.get("per_gpu_gib") or {}, plan.get("corrections") or {}
    seen: dict[str, Any] = {"sglang": plan.get("sglang"), "architecture": plan.get("architecture")}
    for name in OBSERVED:
        ours, theirs = predicted.get(name), logged.get(name)
        if isinstance(ours, int | float) and isinstance(theirs, int | float):
            seen[name] = round(float(theirs) - float(ours) + float(corrected.get(name, 0.0)), 3)
    return seen


def remember(history: Sequence[Mapping[str, Any]] | None, seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The history with one more observation, the oldest dropped."""
    return [*(dict(one) for one in history or ()), dict(seen)][-KEPT:]


def calibration_of(history: Any, version: str, architecture: str) -> Calibration:
    """The correction that a host's observations give; none for another version or a broken history.

    Free memory and graphs belong to the host and the version; weights also to the architecture.
    """
    if not isinstance(history, Sequence) or isinstance(history, str):
        return NO_CALIBRATION
    fitting = [one for one in history if isinstance(one, Mapping) and one.get("sglang") == version]
    same = [one for one in fitting if one.get("architecture") == architecture]
    return Calibration(
        free_gib=_median(fitting, "free"),
        weights_gib=_median(same, "weights"),
        graphs_gib=_median(same, "graphs"),
        launches=len(fitting),
    )


def _median(seen: Sequence[Mapping[str, Any]], name: str) -> float:
    values = [
        float(one[name]) for one in seen if isinstance(one.get(name), int | float) and abs(one[name]) <= LIMIT_GIB
    ]
    return statistics.median(values) if values else 0.0
