"""`opsagent approve`: the answer is in the journal, bound to what was judged, and expires."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opsagent.call import Call, Decision
from opsagent.cli.approve import _record, _settled, command
from opsagent.gate import Gate, Policy
from opsagent.journal.file import FileJournal
from opsagent.journal.runs import open_run
from opsagent_tools.errors import InputError


def waiting(tmp_path: Path, *argv: str) -> Path:
    """A run in which one call waits."""
    folder = tmp_path / "run"
    call = Call(id="c1", tool="ssh_exec", role="target", host="kpro5", args={"argv": list(argv)}, step="look")
    verdict = Gate(Policy()).judge(call)
    told: dict[str, Any] = {
        "tier": verdict.tier, "reasons": [{"rule": r.rule, "text": r.text} for r in verdict.reasons], "assumed": [],
        "effects": [], "facts": {}, "binding": verdict.binding(call),
    }  # fmt: skip
    with FileJournal.create(folder) as journal:
        journal.append("run.started", run="7f3a")
        journal.append("step.entered", step="look")
        journal.append("call.intent", call=call.model_dump(), verdict=told)
        journal.append("approval.requested", call="c1", tier=verdict.tier, binding=verdict.binding(call))
    return folder


def approve(folder: Path, *words: str) -> int:
    result = CliRunner().invoke(command, [str(folder), *words], standalone_mode=False)
    return int(result.return_value)


def test_the_answer_is_bound_and_expires(tmp_path: Path) -> None:
    folder = waiting(tmp_path, "systemctl", "restart", "sglang")
    assert approve(folder, "c1", "--yes") == 0
    state = open_run(folder).state
    call = state.calls["c1"]
    assert call.status == "approved"
    assert call.decision["binding"] == call.verdict["binding"]
    left = datetime.fromisoformat(call.decision["expires"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < left <= timedelta(hours=1)
    assert approve(folder, "c1", "--yes") == 2  # once


def test_r3_needs_the_host(tmp_path: Path) -> None:
    folder = waiting(tmp_path, "reboot")
    assert approve(folder, "c1", "--yes") == 2
    assert approve(folder, "c1", "--confirm-host", "kpro6") == 2
    assert open_run(folder).state.calls["c1"].status == "waiting"
    assert approve(folder, "c1", "--confirm-host", "kpro5") == 0


def test_x_cannot_be_approved(tmp_path: Path) -> None:
    folder = waiting(tmp_path, "cat", "/etc/shadow")
    assert approve(folder, "--yes") == 6
    assert open_run(folder).state.calls["c1"].status == "waiting"


@pytest.mark.parametrize(("option", "answer"), [("--reject", "reject"), ("--stop", "stop")])
def test_refusals_carry_their_reason(tmp_path: Path, option: str, answer: str) -> None:
    folder = waiting(tmp_path, "systemctl", "restart", "sglang")
    assert approve(folder, option, "not tonight") == 0
    decision = open_run(folder).state.calls["c1"].decision
    assert (decision["answer"], decision["reason"]) == (answer, "not tonight")


def test_without_a_terminal_an_answer_must_be_given(tmp_path: Path) -> None:
    folder = waiting(tmp_path, "systemctl", "restart", "sglang")
    assert approve(folder) == 2
    assert approve(folder, "c9", "--yes") == 2
    assert approve(tmp_path / "nowhere") == 2
    result = CliRunner().invoke(command, [str(folder), "--show", "--json"], standalone_mode=False)
    shown = json.loads(result.stdout)
    assert shown["binding"] == shown["verdict"]["binding"]


def test_an_answer_that_comes_too_late_approves_nothing(tmp_path: Path) -> None:
    """Two terminals: while one is still asking, the other's approval is recorded, and the call is made."""
    folder = waiting(tmp_path, "systemctl", "restart", "sglang")
    opened = open_run(folder)
    call = opened.state.calls["c1"]
    assert approve(folder, "c1", "--yes") == 0
    with FileJournal.resume(folder) as journal:
        journal.append("call.started", call="c1")
        journal.append("call.finished", call="c1", ok=True, result={})
    with pytest.raises(InputError, match="c1 is finished"):
        _record(opened, call, Decision("approve", "operator"))
    assert open_run(folder).state.calls["c1"].status == "finished"


def test_a_call_is_settled_once(tmp_path: Path) -> None:
    folder = waiting(tmp_path, "systemctl", "restart", "sglang")
    with FileJournal.resume(folder) as journal:
        journal.append("call.started", call="c1")
        journal.append("call.unknown", call="c1")
    opened = open_run(folder)
    assert _settled(opened, "c1", True, as_json=True) == 0
    with FileJournal.resume(folder) as journal:
        journal.append("call.finished", call="c1", ok=True, result={})
    with pytest.raises(InputError, match="c1 is finished"):
        _settled(opened, "c1", False, as_json=True)
    assert open_run(folder).state.calls["c1"].status == "finished"


def test_of_a_call_that_was_made_again_after_a_stop_only_the_newest_waits(tmp_path: Path) -> None:
    """Two approvals of one question would make it happen twice."""
    folder = waiting(tmp_path, "systemctl", "restart", "sglang")
    first = open_run(folder).state.calls["c1"]
    with FileJournal.resume(folder) as journal:
        again = {**first.call.model_dump(), "id": "c2"}
        journal.append("call.intent", call=again, verdict=first.verdict)
        journal.append("approval.requested", call="c2", tier="R2", binding=first.verdict["binding"])
    assert [each.call.id for each in open_run(folder).state.waiting] == ["c2"]
    assert approve(folder, "c1", "--yes") == 2
    assert approve(folder, "--yes") == 0
    assert [each.status for each in open_run(folder).state.calls.values()] == ["waiting", "approved"]
    assert open_run(folder).state.waiting == []
