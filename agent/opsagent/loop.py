"""The loop: step → model → call → gate → tool → journal, until every step was left or somebody has to decide.

This is the whole agent. Read `drive`, then `work`, then `turn`; a call's own way is in execute.py, a step's in steps.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from opsagent import steps
from opsagent.autopilot import Failure
from opsagent.conversation import Conversation
from opsagent.execute import Outcome, Rejected, execute, prepare
from opsagent.protocols import Model, Reply, ToolCall
from opsagent.run import Run
from opsagent.settling import settle
from opsagent.signals import StopRun
from opsagent_tools.errors import ExitCode

RED_ROUNDS = 4
"""How often a step's checks may come out red before it has failed."""
IDLE_REPLIES = 2
"""How many replies without a call in a row end a step whose checks are red."""


def drive(run: Run, model: Model) -> ExitCode:
    """Follow the runbook to its end.

    Returns VERIFIED when every step was left through its checks, else the code of the failure.

    Raises:
        NeedApproval, StopRun: control signals; the journal has everything that resume needs.
        OpsError: the model, the journal or the budget gave out.
    """
    talk = Conversation(run, model)
    settle(run)
    while not run.finishing:
        if not run.progress.step or run.progress.step in run.progress.left:
            steps.enter_next(run)
            talk.enter_step()
        failure = work(run, model, talk)
        if failure is not None:
            code = exit_code_of(run, failure)
            if (
                code is not ExitCode.TRANSIENT
            ):  # a host that is away cannot be rolled back; resume goes on with the step
                steps.roll_back(run, run.step)
            return code
    finish(run, model, talk)
    return ExitCode.VERIFIED


def work(run: Run, model: Model, talk: Conversation) -> Failure | None:
    """Turns in one step until it is left (None) or has failed."""
    idle = 0
    while True:
        stop_if_asked(run)
        reply = turn(run, model, talk)
        if reply.calls and reply.finish != "length":
            idle = 0
            before = run.progress.step
            make_calls(run, reply.calls, talk)
            if run.progress.step != before:
                talk.enter_step()
            continue
        idle += 1
        if reply.finish == "length":
            talk.say("Your answer was cut at the token limit, so none of its calls was made. Answer shorter.")
        elif steps.check(run):
            talk.say(f"Step {run.progress.step} is left: every check is green.")
            return None
        else:
            talk.red()
        if idle >= IDLE_REPLIES or run.progress.attempts >= RED_ROUNDS:
            return run.progress.failure or Failure(None, "the model makes no call and the checks stay red", "")


def turn(run: Run, model: Model, talk: Conversation) -> Reply:
    """One request and its reply, journaled as sent and as received."""
    request = talk.request()
    run.emit("model.request", model=model.name, **request.journal)
    reply = model.next(request.messages, request.tools)
    run.emit(
        "model.response", model=model.name, message=talk.receive(reply), finish=reply.finish, usage=dict(reply.usage),
        calls=[asdict(call) for call in reply.calls], notes=list(reply.notes), reasoning=reply.reasoning,
    )  # fmt: skip
    if run.budget is not None:
        run.budget.turn(reply.usage)
    return reply


def make_calls(run: Run, calls: Sequence[ToolCall], talk: Conversation) -> None:
    """The calls of one reply, in order. After a remedy moved the run to another step, the rest is not made."""
    start, entered = run.progress.step, run.journal.state.steps[run.progress.step].entered
    for call in calls:
        stop_if_asked(run)
        moved = (run.progress.step, run.journal.state.steps[run.progress.step].entered) != (start, entered)
        if moved:
            talk.answer(call, {"ok": False, "error": f"not made: the run went on from step {run.progress.step}"})
            continue
        talk.answer(call, one_call(run, call, talk))


def one_call(run: Run, call: ToolCall, talk: Conversation) -> dict[str, Any]:
    """Make one call and return what the model reads of it."""
    try:
        ready = prepare(run, call)
        talk.breaker(ready.call)
    except Rejected as error:
        event = run.emit("model.rejected", what=error.what, hint=error.hint, tool=call.name)
        talk.rejected(error)
        return Outcome(False, event.id, error=error.what, hint=error.hint).message()
    if call.name in run.control:
        return control(run, ready)
    outcome = execute(run, ready)
    talk.made(outcome)
    return outcome.message()


def control(run: Run, ready: Any) -> dict[str, Any]:
    """The tools that act on the run itself."""
    if ready.call.tool == "ask_operator":
        outcome = execute(run, ready)
        return {**outcome.message(), "answer": "yes" if outcome.ok else "no"}
    if ready.call.tool == "finish":
        return hand_in(run, ready.args)
    return steps.apply_remedy(run, ready.args.cause)


def hand_in(run: Run, args: Any) -> dict[str, Any]:
    """Accept the report's additions, or say what stands in the way."""
    missing = [f"step {step.id} is not left" for step in run.runbook.steps[len(run.progress.left) :]]
    known = run.journal.state.seq
    for note in args.behaviours:
        wrong = [e for e in note.evidence if not (e[:1] == "e" and e[1:].isdigit() and 0 < int(e[1:]) <= known)]
        missing += [f"claim {note.text[:60]!r} cites {', '.join(wrong)}, which is no event"] if wrong else []
    if missing:
        return {"accepted": False, "missing": missing}
    run.emit("note", finish=args.model_dump(mode="json"))
    return {"accepted": True, "missing": []}


def finish(run: Run, model: Model, talk: Conversation) -> None:
    """Ask the model for its additions to the report. Whether it has any or not, the run is verified by its checks."""
    talk.finishing()
    for _round in range(IDLE_REPLIES):
        reply = turn(run, model, talk)
        for call in reply.calls:
            answer = one_call(run, call, talk)
            talk.answer(call, answer)
            if answer.get("accepted"):
                return


def stop_if_asked(run: Run) -> None:
    if run.stopped():
        raise StopRun(ExitCode.INTERRUPTED, "stopped by the operator", f"opsagent resume {run.id}")


def exit_code_of(run: Run, failure: Failure) -> ExitCode:
    """What the failure of a step means for the exit status: a refusal is 6, a lost host 3, else the work failed."""
    event = next((e for e in run.journal.events() if e.id == failure.event), None)
    if event is not None and event.type == "approval.decided":
        return ExitCode.DENIED
    if event is not None and event.type == "call.failed":
        return ExitCode(int(event.data.get("exit_code") or 1))
    return ExitCode.FAILED
