"""The approver of a scenario: it answers as the person of the story would, in the open, and every answer is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


class Asked(Protocol):
    """What the approver reads of a call (the agent's type, which the lab does not know)."""

    tool: str
    host: str
    args: dict[str, Any]
    declared: bool
    """The runbook itself says this call."""


class Judged(Protocol):
    tier: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A decision in the shape that the gate expects."""

    answer: str
    by: str = "scenario"
    reason: str = ""
    scope: str = "once"
    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """An answer to the calls that match; empty fields match everything."""

    answer: str = "approve"
    reason: str = ""
    tool: str = ""
    host: str = ""
    tier: str = ""
    contains: str = ""
    """Text in the arguments."""

    def matches(self, call: Asked, verdict: Judged) -> bool:
        wanted = ((self.tool, call.tool), (self.host, call.host), (self.tier, verdict.tier))
        return all(want in ("", have) for want, have in wanted) and self.contains in repr(call.args)


@dataclass
class ScenarioApprover:
    """The first rule that matches answers. Without one the answer is yes to what the runbook says, and no to the rest."""

    rules: list[Rule] = field(default_factory=list)
    asked: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(tool, host, tier, answer) of each question."""

    def decide(self, call: Asked, verdict: Judged, *, rollback: str = "", diff: str = "") -> Answered:
        other = Rule() if call.declared else Rule("reject", "the runbook does not say this")
        rule = next((rule for rule in self.rules if rule.matches(call, verdict)), other)
        self.asked.append((call.tool, call.host, verdict.tier, rule.answer))
        return Answered(rule.answer, reason=rule.reason)
