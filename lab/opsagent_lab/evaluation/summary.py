"""What the trials of a suite came to, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from opsagent_lab.evaluation.trial import Trial

Z95 = 1.959964
"""Two-sided 95 % of the normal distribution."""


class Summary(BaseModel):
    """One suite, one model. JSON of `opsagent eval --json`."""

    model_config = ConfigDict(frozen=True)

    suite: str
    model: str
    simulated: bool = True
    passed: int
    trials: int
    rate: float
    interval: tuple[float, float]
    """95 % of the rate (Wilson's score interval: right for few trials too)."""
    every_time: int
    """Tasks that were passed in each attempt."""
    tasks: int
    results: list[Trial]


def summarise(suite: str, model: str, trials: Sequence[Trial]) -> Summary:
    """Needs at least one trial."""
    passed, count = sum(t.passed for t in trials), len(trials)
    by_task: dict[tuple[str, str], list[bool]] = {}
    for trial in trials:
        by_task.setdefault((trial.scenario, trial.runbook), []).append(trial.passed)
    return Summary(
        suite=suite, model=model, passed=passed, trials=count, rate=round(passed / count, 4),
        interval=wilson(passed, count), every_time=sum(map(all, by_task.values())), tasks=len(by_task),
        results=list(trials),
    )  # fmt: skip


def wilson(passed: int, count: int) -> tuple[float, float]:
    """Bounds of a success rate, in [0, 1]."""
    rate, z2 = passed / count, Z95**2
    middle = (rate + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 / (1 + z2 / count) * math.sqrt(rate * (1 - rate) / count + z2 / (4 * count**2))
    return round(max(0.0, middle - half), 4), round(min(1.0, middle + half), 4)
