"""The tools that act on the run itself instead of a host: apply a remedy, ask the operator, hand in the report.

The model (LLM or autopilot) calls them like any other tool; the loop carries them out.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from opsagent_tools.tool import Args, Result, Tool


class ApplyRemedyArgs(Args):
    cause: str = Field(description="Slug of the root cause, as the failed result or the red check named it.")


class ApplyRemedyResult(Result):
    applied: bool
    change: dict[str, Any] = {}
    """Parameters and flags that were changed."""
    next_step: str = ""
    """The step from which the run goes on."""


class AskOperatorArgs(Args):
    question: str = Field(min_length=1, description="One question that can be answered with yes or no.")


class AskOperatorResult(Result):
    answer: str
    """`yes` or `no`."""
    reason: str = ""


class Note(Args):
    """A claim of the model; refused without evidence."""

    text: str = Field(min_length=1, max_length=500)
    evidence: list[str] = Field(min_length=1, description='Ids of events that prove it, e.g. ["e41"].')


class FinishArgs(Args):
    behaviours: list[Note] = Field(default=[], description="What a user of the server will notice.")
    open: list[str] = Field(default=[], max_length=20, description="Questions left to the operator.")


class FinishResult(Result):
    accepted: bool
    missing: list[str] = []
    """What stands in the way: red checks, steps not left, claims without evidence."""


def _by_loop(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("control tools are carried out by the loop, not on a host")


APPLY_REMEDY = Tool(
    name="apply_remedy",
    description="Apply the runbook's remedy for a cause, else the diagnosis' own. It changes parameters or flags, may ask "
    "the operator, and says from which step the run goes on. Each remedy works once per step.",
    args=ApplyRemedyArgs,
    result=ApplyRemedyResult,
    run=_by_loop,
)
ASK_OPERATOR = Tool(
    name="ask_operator",
    description="Ask the operator one yes/no question when the runbook and the tools cannot settle it. May end the run "
    "until somebody answers.",
    args=AskOperatorArgs,
    result=AskOperatorResult,
    run=_by_loop,
    tier="R2",
)
FINISH = Tool(
    name="finish",
    description="Hand in the status report, after the last step was left. The report itself is computed from the journal; "
    "add only what a user will notice and what is open. Refused while a check is red or a claim lacks evidence.",
    args=FinishArgs,
    result=FinishResult,
    run=_by_loop,
)
CONTROL: dict[str, Tool[Any, Any]] = {tool.name: tool for tool in (APPLY_REMEDY, ASK_OPERATOR, FINISH)}
