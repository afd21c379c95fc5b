"""Time, as a value that can be passed: real on real hosts, faster on simulated ones. Tools never call `time` directly."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """Seconds that only grow, and waiting for some of them."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class FastClock:
    """`speed` seconds pass for each real one; 1.0 is real time."""

    speed: float = 1.0
    started: float = field(default_factory=time.monotonic)

    def now(self) -> float:
        return (time.monotonic() - self.started) * self.speed

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds) / self.speed)
