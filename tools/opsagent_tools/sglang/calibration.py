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

    def named(self) -> list[tuple[str, float]]:
        return [
            ("free", self.free_gib), ("weights", self.weights_gib), ("before the pools", self.loss_gib),
            ("graphs", self.graphs_gib),
        ]  # fmt: skip


NO_CALIBRATION = Calibration()


def observe(predicted: Mapping[str, Any], logged: Mapping[str, Any], version: str) -> dict[str, Any]:
    """One observation. `predicted` is a plan's `per_gpu_gib`, `logged` what the log shows, GiB per GPU.

    Keys of `logged`: free, weights, pool_end_avail, graphs; those that either side lacks are left out.
    """
    seen: dict[str, Any] = {"sglang": version}
    for name in ("free", "weights", "graphs", "pool_end_avail"):
        ours, theirs = predicted.get(name), logged.get(name)
        if isinstance(ours, int | float) and isinstance(theirs, int | float):
            seen[name] = round(float(theirs) - float(ours), 3)
    return seen


def remember(history: Sequence[Mapping[str, Any]] | None, seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The history with one more observation, the oldest dropped."""
    return [*(dict(one) for one in history or ()), dict(seen)][-KEPT:]


def calibration_of(history: Any, version: str) -> Calibration:
    """The correction that a host's observations of this version give; none for another version or a broken history."""
    if not isinstance(history, Sequence) or isinstance(history, str):
        return NO_CALIBRATION
    fitting = [one for one in history if isinstance(one, Mapping) and one.get("sglang") == version]

    def median(name: str) -> float:
        values = [
            float(one[name])
            for one in fitting
            if isinstance(one.get(name), int | float) and abs(one[name]) <= LIMIT_GIB
        ]
        return statistics.median(values) if values else 0.0

    return Calibration(
        free_gib=median("free"), weights_gib=median("weights"), graphs_gib=median("graphs"), launches=len(fitting)
    )
