"""Where a run stands in its runbook: a fold over the journal's events, live and on resume alike.

Results, parameters and calls are in the journal's RunState; this is the stepping: which fences are done, what is red or
failed, which remedies were tried. What is not in an event did not happen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from opsagent.autopilot import Failure
from opsagent.protocols import Event
from opsagent_tools.errors import ExitCode

REMEDIES_IN_A_ROW = 3


@dataclass
class Progress:
    """State of the steps. Changed only by `apply`."""

    step: str = ""
    left: list[str] = field(default_factory=list)
    fences: set[int] = field(default_factory=set)
    """Call fences of the current step that are done (or skipped)."""
    unmet: dict[int, str] = field(default_factory=dict)
    """Call fences of the current step that were refused or failed and not made good: the step cannot be left."""
    failure: Failure | None = None
    red: list[str] = field(default_factory=list)
    """Expressions that were red when the step's checks ran last."""
    tried: dict[str, set[str]] = field(default_factory=dict)
    """Causes whose remedy was applied, by step."""
    in_a_row: int = 0
    """Remedies since a step was last left."""
    refused: list[str] = field(default_factory=list)
    """Events of optional calls that the operator refused."""
    attempts: int = 0
    """How often the current step's checks came out red since it was entered."""
    _failed_tool: str = ""
    """Tool of the call that `failure` is about ('' for a check)."""
    _away: int = 0
    """That call failed because its host could not be reached (3) or is not set up rightly (2): time or a person mends it."""
    _meta: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Call id → what its intent said of fence, tool and whether it is optional."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> Progress:
        progress = cls()
        for event in events:
            progress.apply(event)
        return progress

    def apply(self, event: Event) -> None:
        """Take one event into account; unknown types change nothing."""
        handler = getattr(self, "_on_" + event.type.replace(".", "_"), None)
        if handler is not None:
            handler(event, event.data)

    def untried(self, step: str, cause: str) -> bool:
        return cause not in self.tried.get(step, set()) and self.in_a_row < REMEDIES_IN_A_ROW

    def meta(self, call_id: str) -> dict[str, Any]:
        """What the intent of a call said: `fence`, `optional`, `tool`."""
        return self._meta.get(call_id, {})

    # One method per event type that matters here, named after it.

    def _on_step_entered(self, _event: Event, data: dict[str, Any]) -> None:
        if data["step"] in self.left:
            self.left = self.left[: self.left.index(data["step"])]
        self.step, self.fences, self.red, self.attempts = data["step"], set(), [], 0
        self.failure, self._failed_tool, self.unmet = None, "", {}

    def _on_step_left(self, _event: Event, data: dict[str, Any]) -> None:
        self.left.append(data["step"])
        self.in_a_row = 0

    def _on_step_check(self, event: Event, data: dict[str, Any]) -> None:
        if data.get("first"):
            self.red = []
            if not self._failed_tool:
                self.failure = None
        if not data["ok"]:
            if self.failure is None:  # a failed call explains the red checks, not the other way round
                self.failure = Failure(data.get("cause"), data.get("what") or data["expr"], event.id)
            self.red.append(data["expr"])
        if data.get("last") and self.red:
            self.attempts += 1

    def _on_call_intent(self, _event: Event, data: dict[str, Any]) -> None:
        call = data["call"]
        kept = {key: data.get(key) for key in ("fence", "optional")}
        self._meta[call["id"]] = {**kept, "tool": call["tool"], "rollback": call.get("rollback")}

    def _done(self, call_id: str) -> None:
        fence = self._meta.get(call_id, {}).get("fence")
        if fence is not None:
            self.fences.add(fence)
            self.unmet.pop(fence, None)

    def _fail(self, call_id: str, cause: str | None, what: str, event: Event) -> None:
        self._failed_tool, self._away = self.meta(call_id).get("tool", ""), 0
        self.failure = Failure(cause, f"{self._failed_tool}: {what}", event.id)

    def _on_call_finished(self, event: Event, data: dict[str, Any]) -> None:
        self._done(data["call"])
        if not data.get("ok", True):
            result = data.get("result") or {}
            self._fail(data["call"], result.get("cause"), result.get("summary") or "failed", event)
        elif self.meta(data["call"]).get("rollback"):
            pass  # taking it back does not undo that it failed: the report says why
        elif self._failed_tool and self._failed_tool == self.meta(data["call"]).get("tool"):
            self.failure, self._failed_tool = None, ""  # made again, and it worked

    def _on_run_resumed(self, _event: Event, _data: dict[str, Any]) -> None:
        """What failed because of a host that was away is tried again: that is what resuming after exit 3 or 2 means."""
        if self._away == ExitCode.INVALID:
            self.fences, self.unmet = set(), {}  # the step was rolled back then
        if self._away:
            self.failure, self._failed_tool, self.red, self.attempts = None, "", [], 0

    def _on_call_failed(self, event: Event, data: dict[str, Any]) -> None:
        self._fail(data["call"], data.get("cause"), data["what"], event)
        code = int(data.get("exit_code") or 0)
        self._away = code if code in (ExitCode.TRANSIENT, ExitCode.INVALID) else 0
        self._not_made(data["call"])

    def _not_made(self, call_id: str) -> None:
        fence = self.meta(call_id).get("fence")
        if fence is not None:
            self.unmet[fence] = self.meta(call_id).get("tool", "")

    def _on_call_reconciled(self, _event: Event, data: dict[str, Any]) -> None:
        if data.get("happened") == "yes" and isinstance(data.get("result"), dict):
            self._done(data["call"])  # an operator looked, and said what it did

    def _on_approval_decided(self, event: Event, data: dict[str, Any]) -> None:
        if data["answer"] != "reject":
            return
        if self.meta(data["call"]).get("optional"):
            self.refused.append(event.id)
            self._done(data["call"])
        elif self.meta(data["call"]).get("tool") != "ask_operator":
            self._fail(data["call"], None, f"refused by {data['by']}: {data.get('reason') or 'no reason given'}", event)
            self._not_made(data["call"])

    def _on_note(self, _event: Event, data: dict[str, Any]) -> None:
        if data.get("skipped") is not None:
            self.fences.add(data["skipped"])

    def _on_remedy_applied(self, _event: Event, data: dict[str, Any]) -> None:
        self.tried.setdefault(data["step"], set()).add(data["cause"])
        if not data.get("refused"):
            self.in_a_row += 1
            self.failure, self._failed_tool, self.red = None, "", []
