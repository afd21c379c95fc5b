"""The lab's time: `speed` simulated seconds pass for each real one, from a date that the scenario names."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class LabClock:
    """Simulated epoch seconds. Immutable: a restored lab gets a new clock that starts at the saved time."""

    speed: float = 60.0
    epoch: float = 1_764_493_200.0
    """Simulated time at which this clock was started (default 2025-11-30 09:00:00 UTC)."""
    started: float = field(default_factory=time.monotonic)

    def now(self) -> float:
        return self.epoch + (time.monotonic() - self.started) * self.speed

    def real(self, seconds: float) -> float:
        """Real seconds that `seconds` of the lab last."""
        return max(0.0, seconds) / self.speed


def stamp(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A simulated moment as UTC text."""
    return datetime.fromtimestamp(seconds, UTC).strftime(form)
