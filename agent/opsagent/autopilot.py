"""The built-in model: no LLM, no guess. It makes the runbook's calls in order and answers failures with remedies.

It implements the same protocol as an LLM and gets nothing more than the loop shows it through `View`: which call is next,
what failed, whether there is a remedy for the cause.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from opsagent.protocols import Message, Reply, ToolCall
from opsagent.runbook.model import Call


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call or red checks of the current step. `cause` is None when nobody knows."""

    cause: str | None
    what: str
    event: str
    """The event that shows it."""


class View(Protocol):
    """What the loop shows of the current step."""

    @property
    def pending(self) -> Call | None:
        """The next call fence of the step, or None when all were made."""
        ...

    @property
    def failure(self) -> Failure | None:
        """What went wrong since the step was entered, if it was not remedied."""
        ...

    @property
    def finishing(self) -> bool:
        """Every step was left: only the report is missing."""
        ...

    def remedies(self, cause: str) -> Sequence[str]:
        """Where a remedy for the cause would come from (`step`, `runbook`, `diagnosis`), untried ones only."""
        ...


class Autopilot:
    """Deterministic: the same view gives the same call. Says plainly that it is not an LLM."""

    name = "autopilot"
    reads = False
    """It needs no messages: the loop writes none for it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._count = 0

    def next(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Reply:
        view = self._view
        if view.finishing:
            return self._call("finish", {}, "Every check is green: hand in the report.")
        failure = view.failure
        if failure is not None:
            if failure.cause and view.remedies(failure.cause):
                return self._call("apply_remedy", {"cause": failure.cause}, f"{failure.what}: apply its remedy.")
            return Reply(text=f"No remedy is known for this: {failure.what}")
        call = view.pending
        if call is None:
            return Reply(text="The step's calls are made; check it.")
        arguments = dict(call.spec.args)
        if call.spec.host:
            arguments["host"] = call.spec.host
        if call.spec.bind:
            arguments["as"] = call.spec.bind
        return self._call(call.spec.tool, arguments, f"The runbook's call at line {call.line}.")

    def _call(self, tool: str, arguments: dict[str, Any], why: str) -> Reply:
        self._count += 1
        call = ToolCall(f"auto_{self._count}", tool, json.dumps(arguments, ensure_ascii=False))
        return Reply(text=why, calls=(call,), finish="tool_calls")
