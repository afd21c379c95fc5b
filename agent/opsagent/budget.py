"""What a run may use: turns, calls, tokens, wall time, working time. One object, checked before each call and turn.

Waiting for an approval is wall time but not working time; the time between a stop and its resume is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opsagent.journal.state import Usage
from opsagent.runbook.model import BudgetSpec
from opsagent.runbook.params import duration
from opsagent_tools.clock import Clock
from opsagent_tools.errors import BudgetExceeded


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run; 0 is none. Times in seconds of the run's clock (a simulated host's runs faster)."""

    turns: int = 0
    calls: int = 0
    tokens: int = 0
    wall_s: float = 0.0
    working_s: float = 0.0

    @classmethod
    def of(cls, spec: BudgetSpec) -> Limits:
        """The limits that a runbook declares."""
        return cls(spec.turns, spec.calls, spec.tokens, duration(spec.wall or "0"), duration(spec.working or "0"))


@dataclass
class Budget:
    """Counts against limits. `usage` is the live one of the journal's state, so that a resumed run goes on counting."""

    limits: Limits
    clock: Clock
    usage: Callable[[], Usage]
    _started: float = field(init=False)
    _before: float = field(init=False)
    tokens_unknown: bool = False
    """The endpoint did not say what a reply used: a token limit cannot be kept, and the report says so."""

    def __post_init__(self) -> None:
        self._started, self._before = self.clock.now(), self.usage().wall_s

    @property
    def wall_s(self) -> float:
        return self._before + self.clock.now() - self._started

    def turn(self, usage: Mapping[str, int]) -> None:
        """After a reply. Raises BudgetExceeded."""
        spent = self.usage()
        self.tokens_unknown = self.tokens_unknown or spent.tokens_in is None or spent.tokens_out is None
        self._check("turns", spent.turns, self.limits.turns)
        self._check("tokens", (spent.tokens_in or 0) + (spent.tokens_out or 0), self.limits.tokens)
        self.time()

    def call(self) -> None:
        """Before a call is made. Raises BudgetExceeded."""
        self._check("calls", self.usage().calls + 1, self.limits.calls)
        self.time()

    def time(self) -> None:
        """Raises BudgetExceeded when the time is over."""
        self._check("wall time (s)", self.wall_s, self.limits.wall_s)
        self._check("working time (s)", self.wall_s - self.usage().waiting_s, self.limits.working_s)

    def left_s(self) -> float:
        """Seconds until the first time limit; infinite without one."""
        left = [limit - used for limit, used in self._times() if limit]
        return min(left, default=float("inf"))

    def _times(self) -> list[tuple[float, float]]:
        return [
            (self.limits.wall_s, self.wall_s),
            (self.limits.working_s, self.wall_s - self.usage().waiting_s),
        ]

    def _check(self, kind: str, used: float, limit: float) -> None:
        if limit and used > limit:
            raise BudgetExceeded(
                f"budget exceeded: {kind}, {used:.0f} of {limit:.0f}",
                hint="raise it in the runbook's `budget`, then `opsagent resume --accept-drift`",
            )
