"""Ends what goes round in circles: equal calls, two calls in turn, refusals and unusable calls in a row.

Works without looking at results: a call that is repeated because its result changes is a poll, and its tool says so
(`Tool.polls`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from opsagent.call import Call, canonical
from opsagent_tools.errors import ExitCode, ModelUnusable, OpsError

NUDGE_AT = 3
STOP_AT = 5
DENIALS = 3
REJECTIONS = 5


class GoingInCircles(OpsError):
    """The model repeats itself without progress: the work has failed."""

    exit_code = ExitCode.FAILED


class RefusedAgain(GoingInCircles):
    """The model goes on asking for what it may not do: the run ends as denied, like any run that a refusal ends."""

    exit_code = ExitCode.DENIED


@dataclass
class Breaker:
    """Sees every call before it is made. One per run."""

    _seen: deque[str] = field(default_factory=lambda: deque(maxlen=2 * STOP_AT))
    _denials: int = 0
    _rejections: int = 0

    def see(self, call: Call, *, polls: bool = False) -> str:
        """A nudge for the model when a call was made too often ('' if not). Raises GoingInCircles at the fifth time."""
        self._rejections = 0
        if polls:
            return ""
        self._seen.append(canonical([call.tool, call.host, call.args, call.step]))
        rounds, what = self._rounds()
        if rounds >= STOP_AT:
            raise GoingInCircles(
                f"the model made {what} {rounds} times without progress",
                hint="look at its last results with `opsagent show`; a better model or runbook is needed",
            )
        if rounds >= NUDGE_AT:
            return f"{what} was asked for {rounds} times and will answer the same; at {STOP_AT} the run ends"
        return ""

    def refused(self) -> None:
        """A call was refused. Raises RefusedAgain (exit 6) at the third in a row."""
        self._denials += 1
        if self._denials >= DENIALS:
            raise RefusedAgain(
                f"{self._denials} calls in a row were refused", hint="the runbook does not allow this way"
            )

    def made(self) -> None:
        """A call was made: refusals do not follow each other any more."""
        self._denials = 0

    def rejected(self) -> None:
        """A call could not be used (unknown tool, broken arguments). Raises ModelUnusable at the fifth in a row."""
        self._rejections += 1
        if self._rejections >= REJECTIONS:
            raise ModelUnusable(
                f"the model sent {self._rejections} unusable calls in a row",
                hint="check that the endpoint's tool-call parser fits the model, or take another model",
            )

    def _rounds(self) -> tuple[int, str]:
        """How often the last call, or the last two in turn, came in a row."""
        seen = list(self._seen)
        same = _run_length(seen, 1)
        pairs = _run_length(seen, 2) if len(seen) > 1 and seen[-1] != seen[-2] else 0
        return (pairs, "the same two calls in turn") if pairs > same else (same, "the same call")


def _run_length(seen: list[str], period: int) -> int:
    """How many times the last `period` items repeat at the end."""
    last = seen[-period:]
    count = 0
    while seen[len(seen) - (count + 1) * period : len(seen) - count * period] == last:
        count += 1
    return count
