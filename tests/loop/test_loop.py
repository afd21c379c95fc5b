"""The loop with the autopilot: steps, checks, remedies, rollbacks, refusals, lost links. Judged by state and events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop.world import TWO_STEPS, CounterHost, ScriptedGate, make_run

from opsagent.autopilot import Autopilot
from opsagent.call import Decision
from opsagent.execute import Rejected, prepare
from opsagent.journal import fold
from opsagent.loop import drive
from opsagent.models.scripted import ScriptedModel, calls, says
from opsagent.progress import Progress
from opsagent.protocols import ToolCall
from opsagent.run import Run
from opsagent.runbook.model import Allow
from opsagent.session import left_out
from opsagent.settling import resumed
from opsagent.signals import NeedApproval, StopRun
from opsagent_tools.errors import ExitCode, HostUnreachable, OutcomeUnknown, ToolFailed


def types(run: Run) -> list[str]:
    return [event.type for event in run.journal.events()]


def data(run: Run, kind: str) -> list[dict[str, object]]:
    return [event.data for event in run.journal.events() if event.type == kind]


def go(run: Run) -> ExitCode:
    return drive(run, Autopilot(run))


def test_two_steps_are_left_in_order_and_each_effect_is_announced_before_it_happens() -> None:
    host = CounterHost()
    run = make_run(TWO_STEPS, host=host)
    assert go(run) is ExitCode.VERIFIED
    assert [d["step"] for d in data(run, "step.left")] == ["raise", "look"]
    assert host.effects == ["c1+2"]
    for call in ("c1", "c2"):
        order = [e.type for e in run.journal.events() if e.data.get("call") == call or _call_id(e.data) == call]
        assert order == ["call.intent", "approval.decided", "call.started", "call.finished"]
    assert run.journal.state.bindings["seen"]["value"] == 2


def _call_id(data: dict[str, object]) -> object:
    call = data.get("call")
    return call.get("id") if isinstance(call, dict) else call


def test_state_is_the_fold_of_the_journal() -> None:
    run = make_run(TWO_STEPS)
    go(run)
    assert fold(run.journal.events()) == run.journal.state
    again = Progress.of(run.journal.events())
    assert (again.left, again.fences, again.tried) == (run.progress.left, run.progress.fences, run.progress.tried)


def test_a_red_check_without_remedy_fails_the_step_and_rolls_it_back() -> None:
    body = """
    ## Raise {#raise}
    ```call
    tool: add
    args: {by: 1}
    as: added
    ```
    ```check
    - added.value == 5
    ```
    ```rollback
    tool: add
    args: {by: -1}
    ```
    """
    host = CounterHost()
    run = make_run(body, host=host)
    assert go(run) is ExitCode.FAILED
    assert host.value == 0
    assert [d["call"]["rollback"] for d in data(run, "call.intent")] == [False, True]  # type: ignore[index]
    assert data(run, "step.check")[0]["ok"] is False


REMEDIED = """
    ## Prepare {#prepare}
    ```call
    tool: add
    args: {by: 1, flags: "${wish}"}
    as: added
    ```

    ## Look {#look}
    ```call
    tool: read
    args: {least: 2}
    as: seen
    ```
    ```check
    - seen.value >= 2
    ```
    ```remedy
    too-low:
      set: {--more: "1"}
      then: prepare
    ```
"""


def test_a_remedy_changes_the_flags_and_goes_on_from_the_step_it_names() -> None:
    host = CounterHost()
    run = make_run(REMEDIED, host=host)
    assert go(run) is ExitCode.VERIFIED
    assert run.journal.state.params["wish"] == ["--more", "1"]
    assert host.value == 2
    assert [d["step"] for d in data(run, "step.entered")] == ["prepare", "look", "prepare", "look"]
    (remedy,) = data(run, "remedy.applied")
    assert remedy["cause"] == "too-low"
    assert remedy["evidence"]


def test_a_remedy_that_does_not_help_is_not_tried_again() -> None:
    run = make_run(REMEDIED.replace("least: 2", "least: 9").replace("seen.value >= 2", "seen.value >= 9"))
    assert go(run) is ExitCode.FAILED
    assert len(data(run, "remedy.applied")) == 1


def test_an_ask_without_an_answer_ends_with_need_approval_and_with_a_no_the_step_fails() -> None:
    body = REMEDIED.replace('set: {--more: "1"}', 'ask: "More of ${seen.value}?"')
    waiting = make_run(body, gate=ScriptedGate({"ask_operator": Decision("wait", by="nobody")}))
    with pytest.raises(NeedApproval):
        go(waiting)
    assert [c.call.args["question"] for c in waiting.journal.state.waiting] == ["More of 1?"]
    refused = make_run(body, gate=ScriptedGate({"ask_operator": Decision("reject", by="operator")}))
    assert go(refused) is not ExitCode.VERIFIED


OPTIONAL = """
    ## Stop {#stop}
    ```call
    tool: smash
    args: {by: 100}
    as: smashed
    optional: true
    ```
    ```check
    - smashed == null || smashed.value > 0
    ```
"""


def test_an_optional_call_may_be_refused_and_the_run_goes_on() -> None:
    host = CounterHost()
    run = make_run(OPTIONAL, host=host, gate=ScriptedGate({"smash": Decision("reject", by="scenario", reason="no")}))
    assert go(run) is ExitCode.VERIFIED
    assert host.value == 0
    assert len(run.progress.refused) == 1


def test_a_refused_call_that_is_needed_ends_the_run_as_denied() -> None:
    host = CounterHost()
    run = make_run(OPTIONAL.replace("optional: true", ""), host=host, gate=ScriptedGate(denied={"smash"}))
    assert go(run) is ExitCode.DENIED
    assert host.value == 0
    assert "call.started" not in types(run)


def test_a_refused_call_that_no_check_looks_at_still_keeps_the_step() -> None:
    body = """
    ## Smash {#smash}
    ```call
    tool: smash
    ```
    """
    run = make_run(body, gate=ScriptedGate(denied={"smash"}))
    assert go(run) is ExitCode.DENIED
    assert "step.left" not in types(run)


def test_facts_that_changed_after_the_approval_void_it() -> None:
    host = CounterHost()
    run = make_run(OPTIONAL.replace("optional: true", ""), host=host, gate=ScriptedGate(stale={"smash"}))
    assert go(run) is ExitCode.DENIED
    assert host.effects == []


def test_a_dry_run_makes_reads_only() -> None:
    host = CounterHost()
    run = make_run(TWO_STEPS.replace("added.value == goal", "run.dry || added.value == goal"), host=host, dry=True)
    go(run)
    assert host.effects == []


def test_a_dry_run_ends_with_the_call_that_it_would_make_and_not_with_a_null() -> None:
    run = make_run(TWO_STEPS, host=CounterHost(), dry=True)
    assert go(run) is ExitCode.FAILED
    told = left_out(run)
    assert told is not None
    assert "add on" in told.text
    assert [event.type for event in run.journal.events() if event.id in told.evidence] == ["approval.decided"]
    assert left_out(make_run(TWO_STEPS, host=CounterHost())) is None


def test_a_call_is_skipped_when_its_condition_is_false_and_its_name_is_null() -> None:
    body = """
    ## Raise {#raise}
    ```call
    tool: add
    as: added
    when: goal > 5
    ```
    ```check
    - added == null
    ```
    """
    host = CounterHost()
    run = make_run(body, host=host)
    assert go(run) is ExitCode.VERIFIED
    assert host.effects == []
    assert run.journal.state.bindings == {"added": None}


# --- failures and lost links -------------------------------------------------------------------------------------


def test_an_unreachable_host_is_transient_and_a_failed_tool_is_failed_work() -> None:
    assert go(make_run(TWO_STEPS, host=CounterHost(faults=[HostUnreachable("refused")]))) is ExitCode.TRANSIENT
    assert go(make_run(TWO_STEPS, host=CounterHost(faults=[ToolFailed("no")]))) is ExitCode.FAILED


def test_a_lost_link_before_the_effect_is_reconciled_and_the_call_made_again() -> None:
    host = CounterHost(faults=[OutcomeUnknown("link lost")])
    run = make_run(TWO_STEPS, host=host)
    assert go(run) is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]
    assert [d["happened"] for d in data(run, "call.reconciled")] == ["no"]


def test_a_lost_link_after_the_effect_does_not_repeat_it() -> None:
    host = CounterHost(value=2, effects=["c1+2"], faults=[OutcomeUnknown("link lost")])
    run = make_run(TWO_STEPS, host=host)
    assert go(run) is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]
    assert [d["happened"] for d in data(run, "call.reconciled")] == ["yes"]


def test_an_effect_that_nobody_can_check_stops_the_run_with_unknown_outcome() -> None:
    host = CounterHost(faults=[OutcomeUnknown("link lost")])
    run = make_run(OPTIONAL, host=host)
    with pytest.raises(StopRun) as stop:
        go(run)
    assert stop.value.exit_code is ExitCode.UNKNOWN_OUTCOME
    assert [d["happened"] for d in data(run, "call.reconciled")] == ["unclear"]


def test_a_call_that_was_cut_by_a_stop_is_settled_before_anything_else() -> None:
    host = CounterHost(value=2, effects=["c1+2"])
    run = make_run(TWO_STEPS, host=host)
    run.emit("step.entered", step="raise")
    intent = {"id": "c1", "tool": "add", "role": "box", "host": "box", "args": {"by": 2, "flags": []}, "step": "raise"}
    run.emit("call.intent", call=intent, bind="added", fence=0, verdict={"tier": "R1"})
    run.emit("call.started", call="c1")
    assert go(run) is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]


def test_an_approval_given_after_the_stop_is_used_once_and_only_for_what_was_approved() -> None:
    host = CounterHost()
    gate = ScriptedGate({"smash": Decision("wait", by="nobody")})
    run = make_run(OPTIONAL, host=host, gate=gate)
    with pytest.raises(NeedApproval):
        go(run)
    (waiting,) = run.journal.state.waiting
    binding = waiting.verdict["binding"]
    run.emit("approval.decided", call=waiting.call.id, answer="approve", by="operator", reason="", scope="once",
             binding=binding)  # fmt: skip
    assert go(run) is ExitCode.VERIFIED
    assert host.effects == [f"{waiting.call.id}+100"]
    assert resumed(run, run.journal.state.calls[waiting.call.id]) is None


def test_an_approval_of_something_else_is_void() -> None:
    host = CounterHost()
    run = make_run(OPTIONAL.replace("optional: true", ""), host=host,
                   gate=ScriptedGate({"smash": Decision("wait", by="nobody")}))  # fmt: skip
    with pytest.raises(NeedApproval):
        go(run)
    (waiting,) = run.journal.state.waiting
    run.emit("approval.decided", call=waiting.call.id, answer="approve", by="operator", reason="", scope="once",
             binding="0" * 64)  # fmt: skip
    assert go(run) is ExitCode.DENIED
    assert host.effects == []


def test_several_refusals_in_one_reply_count_once() -> None:
    """The model asks for three forbidden calls at once: it must be able to read why before the run gives it up."""
    gate = ScriptedGate(denied={"smash"})
    model = ScriptedModel(
        [
            calls(*[("smash", {"by": n}) for n in (1, 2, 3)]),
            calls(("add", {"by": 2, "as": "added"})),
            says("check"),
            calls(("read", {"least": 2, "as": "seen"})),
            says("check"),
            calls(("finish", {})),
        ]
    )
    run = make_run(TWO_STEPS, gate=gate)
    assert drive(run, model) is ExitCode.VERIFIED
    model.assert_used_up()
    assert run.journal.state.usage.denials == 3


def test_an_unknown_tool_is_answered_with_tools_that_were_offered() -> None:
    run = make_run(TWO_STEPS)
    run.emit("step.entered", step="raise")
    narrowed = run.runbook.front.model_copy(update={"allow": Allow(tools=("read", "add"))})
    run.runbook = replace(run.runbook, front=narrowed)
    with pytest.raises(Rejected) as rejected:
        prepare(run, ToolCall("x", "zzzz", "{}"))
    assert "smash" not in rejected.value.hint
    assert "read" in rejected.value.hint
