"""One typed call, and what the gate says of it. These few types are the seam between loop, gate, journal and models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from opsagent_tools.tool import Tier

TIERS: tuple[Tier, ...] = ("R0", "R1", "R2", "R3", "X")


def canonical(value: Any) -> str:
    """JSON that is equal for equal values: sorted keys, no spaces, UTF-8 as it is."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Call(BaseModel):
    """A call that is about to be judged: arguments are validated, the host is a role of the run ('' for none)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """`c1`, `c2` … unique in the run; a server started by it carries it on the host."""
    tool: str
    role: str = ""
    """The runbook's role of the host, e.g. `target`."""
    host: str = ""
    """The host's configured name, e.g. `kpro5/ct129`."""
    args: dict[str, Any]
    """JSON form of the tool's validated arguments."""
    step: str = ""
    """The runbook step in which it happens."""
    declared: bool = False
    """True when the runbook's own fence says exactly this call (after its references are filled in)."""
    rollback: bool = False
    """True when it is a declared rollback of an earlier call."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One rule that spoke, e.g. `path.outside-roots`: /etc/fstab is not under an allowed root."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's classification: a pure function of call, facts and policy."""

    tier: Tier
    reasons: tuple[Reason, ...]
    assumed: tuple[str, ...] = ()
    """Facts that were taken for granted because the host was not asked."""
    effects: tuple[str, ...] = ()
    """What would happen, resolved for the reader: `kills pid 4121 sglang::scheduler, started 3 d ago, not by this run`."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The host facts it rests on (realpaths, pids with start time …); rechecked right before the effect."""

    def binding(self, call: Call, safe: Callable[[Any], Any] = lambda value: value) -> str:
        """sha256 that an approval is bound to: tool, arguments, host, resolved facts, step and tier.

        `safe` takes secrets out first. What is written down is always such a hash: one over a secret could be guessed
        at leisure by whoever reads the journal. In memory the whole call is compared, secrets too (Gate.recheck).
        """
        bound = safe([call.tool, call.args, call.host, self.facts, call.step, self.tier])
        return hashlib.sha256(canonical(bound).encode()).hexdigest()


Answer = Literal["approve", "change", "reject", "stop", "wait"]
Scope = Literal["once", "step", "rule"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What an approver said. `wait` means that nobody could be asked: exit 4, state saved."""

    answer: Answer
    by: str
    """Who: `policy`, `runbook`, `operator`, `scenario`, `approve-file` …"""
    reason: str = ""
    scope: Scope = "once"
    args: dict[str, Any] | None = None
    """New arguments, for `change`; they are validated and judged afresh."""
