"""A run that did not end verified: why is not forgotten, and what it would take is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from loop.world import CounterHost, ScriptedGate
from replay.record import record
from report.hostile import hostile

from opsagent.call import Call
from opsagent.journal.state import CallState, RunState
from opsagent.protocols import Event
from opsagent.report.evidence import Evidence
from opsagent.report.html import MEANING, render
from opsagent.report.incidents import incidents
from opsagent.report.model import STATUS_BY_CODE, StatusReport
from opsagent.report.trouble import trouble
from opsagent_tools.errors import PolicyDenied
from opsagent_tools.sglang.diagnosis import CAUSES

FAILS_AND_IS_TAKEN_BACK = """
    ## Raise {#raise}

    ```call
    tool: add
    args: {by: 2}
    ```
    ```call
    tool: read
    args: {least: 9}
    as: seen
    ```
    ```check
    - seen.value >= 9
    ```
    ```rollback
    tool: read
    ```
"""


def report_in(folder: Path) -> StatusReport:
    return StatusReport.model_validate(json.loads((folder / "report.json").read_text(encoding="utf-8")))


def test_a_rollback_with_the_same_tool_does_not_erase_the_reason(tmp_path: Path) -> None:
    record(tmp_path / "run", FAILS_AND_IS_TAKEN_BACK)
    report = report_in(tmp_path / "run")
    assert report.status == "failed"
    assert report.failed is not None
    assert "read" in report.failed.text
    assert report.failed.evidence


@pytest.mark.parametrize("code", sorted(STATUS_BY_CODE))
def test_every_status_has_its_words(code: int) -> None:
    report = hostile("x", status=STATUS_BY_CODE[code], exit_code=code)
    assert report.status in MEANING
    problem = trouble(report)
    assert (problem is None) == (code == 0)
    if problem is not None:
        assert problem.takes[-1][1] == report.undo
        assert ("x", "") not in problem.takes


def test_what_waits_comes_first() -> None:
    report = hostile("x", status="waiting-approval", exit_code=4).model_copy(
        update={"open": ["Is it so?", "write_file (c4) waits: opsagent approve 30ea c4"]}
    )
    problem = trouble(report)
    assert problem is not None
    assert problem.takes[0][1] == "opsagent approve 30ea c4"


def call(
    number: int, *, tool: str = "inspect_host", host: str = "a", cause: str | None = None, rollback: bool = False
) -> CallState:
    made = Call(id=f"c{number}", tool=tool, role="target", host=host, args={}, rollback=rollback)
    return CallState(
        made, "finished", result={"cause": cause}, ok=cause is None, events={"call.finished": f"e{number * 10}"}
    )


def resolved(*calls: CallState, remedied_at: int = 0) -> bool:
    state = RunState(calls={c.call.id: c for c in calls})
    events = [Event(remedied_at, "", "remedy.applied", {"cause": "busy", "change": {}}, "")] if remedied_at else []
    return incidents(Evidence.of(state, events))[0].resolved


def test_what_makes_a_cause_resolved() -> None:
    assert not resolved(call(1, cause="busy"))
    assert resolved(call(1, cause="busy"), call(2))
    assert not resolved(call(1, cause="busy"), call(2, host="b")), "another host says nothing about this one"
    assert not resolved(call(1, cause="busy"), call(2, rollback=True)), "the work that showed it was taken back"
    assert resolved(call(1, cause="busy"), remedied_at=15)
    assert not resolved(call(1, cause="busy"), call(2, cause="busy"), remedied_at=15), (
        "it is still there after the remedy"
    )


def test_a_run_that_is_refused_says_so(tmp_path: Path) -> None:
    gate = ScriptedGate(denied={"add"})
    record(tmp_path / "run", host=CounterHost(), gate=gate)
    report = report_in(tmp_path / "run")
    problem = trouble(report)
    assert report.status == "denied", PolicyDenied.__name__
    assert problem is not None
    assert problem.takes


def test_what_helps_is_said_while_a_cause_is_not_resolved() -> None:
    report = hostile("x")
    open_one = report.incidents[0].model_copy(update={"cause": "degenerate-output", "resolved": False})
    closed = open_one.model_copy(update={"resolved": True})
    helps = CAUSES["degenerate-output"].fix
    assert helps in render(report.model_copy(update={"incidents": [open_one]}), [])
    assert helps not in render(report.model_copy(update={"incidents": [closed]}), [])
