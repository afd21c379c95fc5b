"""What a tool is: a name, typed arguments, a typed result, and a function from host and arguments to result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from opsagent_tools.clock import Clock, FastClock
from opsagent_tools.host import Host

Tier = Literal["R0", "R1", "R2", "R3", "X"]
Recovery = Literal["read_only", "idempotent", "reconcilable", "non_retriable"]
"""What resume does with a call whose outcome is unknown: run again, run again, probe first, ask the operator."""


class Args(BaseModel):
    """Base of every tool's arguments: unknown keys are errors, values are not changed after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Result(BaseModel):
    """Base of every tool's result. `failed` and `cause` let a check or a remedy see a failure without prose."""

    model_config = ConfigDict(extra="forbid")

    cause: str | None = None
    """Slug of the root cause when the call shows a failure (docs/reference/causes.md); remedies match on it."""
    summary: str = ""
    """One line for people: what happened, with the number that matters."""

    @property
    def failed(self) -> bool:
        """Whether the loop should look for a remedy although no exception was raised."""
        return False


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of something slow; the live view draws it. `done`/`total` in `unit`, or only a `text`."""

    text: str
    done: float | None = None
    total: float | None = None
    unit: str = ""
    expected_s: float | None = None


@dataclass(frozen=True)
class Context:
    """What the loop lends a tool besides its arguments. Every field has a default: `tool.run(host, args)` is enough."""

    run_id: str = "0000"
    call_id: str = "c0"
    progress: Callable[[Progress], None] = field(default=lambda _p: None)
    keep: Callable[[str, bytes], str] = field(default=lambda _name, _data: "")
    """Store a whole output as a blob of the run (`name`, bytes) and return its sha256 (empty without a journal)."""
    stopped: Callable[[], bool] = field(default=lambda: False)
    """True when the operator asked to stop; a tool that waits looks at it."""
    history: dict[str, Any] = field(default_factory=dict)
    """Measured facts of earlier runs on this host (durations of phases, calibration), by name."""
    clock: Clock = field(default_factory=FastClock)
    """Every wait and every deadline of a tool goes through it (simulated hosts run faster than real time)."""
    secrets: Callable[[str], None] = field(default=lambda _value: None)
    """Tell the redactor about a secret value before it can appear anywhere (a token that a tool reads or makes)."""
    lookup: Callable[[str], Host] | None = None
    """Another host of the run by its role, for copying between two (download_model's other way)."""


A = TypeVar("A", bound=Args)
R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Tool(Generic[A, R]):
    """A typed tool. `tier` is the least tier of a call; the gate may raise it, never lower it."""

    name: str
    description: str
    """For the model: what it does, when to use it, what it returns, in a few sentences."""
    args: type[A]
    result: type[R]
    run: Callable[..., R]
    """`run(host, args, ctx=Context())`."""
    tier: Tier = "R0"
    recovery: Recovery = "read_only"
    probe: Callable[..., R | None] | None = None
    """For `reconcilable`: `probe(host, args, ctx)` says what happened (the result) or that nothing did (None)."""
    polls: bool = False
    """Repeating the same call is normal (the loop breaker leaves it alone)."""
