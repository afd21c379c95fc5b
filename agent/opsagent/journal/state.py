"""What a run knows of itself: steps, calls, bindings, usage. Made by `fold` and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from opsagent.call import Call
from opsagent.protocols import Message
from opsagent.redact import lost_secrets

CallStatus = Literal[
    "intent", "waiting", "approved", "changed", "refused", "started", "finished", "failed", "unknown", "undone"
]
"""`changed`: the operator gave other arguments, and the call with them was not announced yet.

`undone`: it was reconciled, and nothing had happened on the host."""


@dataclass(slots=True)
class CallState:
    """One call, from intent to end."""

    call: Call
    status: CallStatus = "intent"
    bind: str = ""
    verdict: dict[str, Any] = field(default_factory=dict)
    decision: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    ok: bool = False
    error: dict[str, Any] = field(default_factory=dict)
    """`{what, where, hint, exit_code}` of call.failed."""
    duration_s: float = 0.0
    rollback: str = ""
    """What the runbook declares to take it back, as the person who was asked read it."""
    events: dict[str, str] = field(default_factory=dict)
    """Event type → id of the last event of that type: what a report cites."""

    @property
    def open(self) -> bool:
        """An effect may be under way or half known: it must be settled before anything else happens."""
        return self.status in ("started", "unknown")

    @property
    def done(self) -> bool:
        return self.status in ("finished", "failed", "refused", "undone")


@dataclass(slots=True)
class StepState:
    """One step of the runbook, over all the times it was entered."""

    id: str
    entered: int = 0
    left: bool = False
    checks: dict[str, bool] = field(default_factory=dict)
    """Expression → whether it held, since the step was last entered."""
    remedies: list[str] = field(default_factory=list)
    """Causes whose remedy was applied in this step, over all times."""
    calls: list[str] = field(default_factory=list)
    """Call ids since the step was last entered."""


@dataclass(slots=True)
class Usage:
    """What was used. Tokens are None when the endpoint did not say for some reply: unknown, not zero."""

    turns: int = 0
    calls: int = 0
    retries: int = 0
    rejected: int = 0
    denials: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    wall_s: float = 0.0
    waiting_s: float = 0.0
    """Waiting for approvals; not working time."""
    away_s: float = 0.0
    """Between a stop and its resume; neither wall nor working time."""

    @property
    def working_s(self) -> float:
        return max(0.0, self.wall_s - self.waiting_s)


@dataclass(slots=True)
class RunState:
    """Everything that a run knows of itself."""

    seq: int = 0
    run: str = ""
    started: dict[str, Any] = field(default_factory=dict)
    """Data of run.started."""
    status: str = ""
    """'' while it runs, else the report's status."""
    exit_code: int | None = None
    resumes: int = 0
    policy: str = ""
    """sha256 of the policy in force: the one it began with, or a changed one that was accepted."""
    step: str = ""
    steps: dict[str, StepState] = field(default_factory=dict)
    calls: dict[str, CallState] = field(default_factory=dict)
    bindings: dict[str, Any] = field(default_factory=dict)
    """Results by the name that the runbook or the model gave them, newest wins."""
    bound_by: dict[str, str] = field(default_factory=dict)
    """Name of a binding → event that bound it."""
    params: dict[str, Any] = field(default_factory=dict)
    remedies: list[dict[str, Any]] = field(default_factory=list)
    snapshots: dict[str, dict[str, Any]] = field(default_factory=dict)
    """`HOST/PHASE` → facts."""
    bystanders: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Host → servers of others that were there before the first write, and were well when they were looked at last."""
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Data of the events that say that one of them is gone."""
    drift: list[dict[str, Any]] = field(default_factory=list)
    redactions: dict[str, int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    """The conversation as last sent to the model, with its reply."""
    usage: Usage = field(default_factory=Usage)
    first_ts: str = ""
    last_ts: str = ""
    waiting_since: str = ""
    ended_ts: str = ""
    """When the last process ended, until another one goes on."""

    @property
    def waiting(self) -> list[CallState]:
        """Calls that wait for an approval; of one that was made again after a stop, only the newest.

        Else two answers to the same question would make it happen twice.
        """
        found: list[CallState] = []
        later: list[tuple[str, str, str, dict[str, Any]]] = []
        for known in reversed(self.calls.values()):
            said = (known.call.tool, known.call.host, known.call.step, known.call.args)
            if known.status == "waiting" and (said not in later or lost_secrets(known.call.args)):
                found.append(known)
            later.append(said)
        return found[::-1]

    @property
    def unsettled(self) -> list[CallState]:
        """Calls whose effect is not known: resume settles them first."""
        return [call for call in self.calls.values() if call.open]
