"""The state machine of a runbook: enter a step, check it, leave it, remedy it, roll it back. The model cannot skip one."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from opsagent.execute import Outcome, Rejected, execute, prepare
from opsagent.protocols import ToolCall
from opsagent.run import Run
from opsagent.runbook import expr
from opsagent.runbook.model import Call as Fence
from opsagent.runbook.model import RemedySpec, Step
from opsagent.runbook.params import coerce, set_flag
from opsagent_tools.errors import InputError


def enter_next(run: Run) -> Step:
    """Enter the first step that was not left."""
    step = run.runbook.steps[len(run.progress.left)]
    run.emit("step.entered", step=step.id, title=step.title)
    return step


def check(run: Run) -> bool:
    """Evaluate the step's checks, journal each, and leave the step when all hold."""
    step, bindings = run.step, run.bindings()
    count = len(step.checks)
    green = True
    for index, item in enumerate(step.checks):
        ok, what, values = _evaluate(item.expr, bindings)
        green = green and ok
        roots = sorted(expr.roots(item.expr))
        evidence = [run.journal.state.bound_by[root] for root in roots if root in run.journal.state.bound_by]
        run.emit(
            "step.check", step=step.id, expr=item.expr, ok=ok, values=values, what=what, why=item.why,
            cause=None if ok else _cause(run, roots), evidence=evidence, first=index == 0, last=index == count - 1,
        )  # fmt: skip
    if green and run.progress.unmet:
        # Its checks may not look at the call at all; a declared call that was refused or failed is not done for that.
        tools = ", ".join(run.progress.unmet.values())
        run.emit("step.check", step=step.id, expr=f"made: {tools}", ok=False, values={}, evidence=[], last=True,
                 what=f"a declared call was not made: {tools}", why="", cause=None)  # fmt: skip
        return False
    if green:
        run.emit("step.left", step=step.id)
    return green


def _evaluate(text: str, bindings: dict[str, Any]) -> tuple[bool, str, dict[str, Any]]:
    """Whether it holds, why not in words, and the values it looked at."""
    values: dict[str, Any] = {}
    for root, path in expr.paths(text):
        value = bindings.get(root)
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, (dict, list)):
            values[".".join((root, *path))] = value
    try:
        result = expr.evaluate(text, bindings)
    except InputError as error:
        return False, error.what, values
    if result is True:
        return True, "", values
    seen = ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    return False, f"red: {text}" + (f"  ({seen})" if seen else ""), values


def _cause(run: Run, roots: list[str]) -> str | None:
    """The cause that a result named by a red check carries."""
    for root in roots:
        value = run.journal.state.bindings.get(root)
        if isinstance(value, dict) and value.get("cause"):
            return str(value["cause"])
    return None


# --- remedies ------------------------------------------------------------------------------------------------------


def apply_remedy(run: Run, cause: str) -> dict[str, Any]:
    """Carry out the remedy for a cause, the step's before the runbook's before the diagnosis' own.

    Returns the result for the model: what changed and from which step the run goes on (which is then entered).
    """
    sources = run.remedies(cause)
    if not sources:
        tried = cause in run.progress.tried.get(run.progress.step, set())
        why = "it was tried in this step already" if tried else "neither the runbook nor the diagnosis has one"
        return {"applied": False, "summary": f"no remedy for {cause}: {why}", "change": {}, "next_step": ""}
    step = run.progress.step
    shown = run.progress.failure.event if run.progress.failure else ""
    source, spec = sources[0], _spec(run, sources[0], cause)
    if spec.ask and not _yes(run, str(expr.resolve(spec.ask, run.bindings()))):
        run.emit("remedy.applied", step=step, cause=cause, change={}, source=source, refused=True, evidence=[])
        return {"applied": False, "summary": f"the operator said no to the remedy for {cause}", "change": {},
                "next_step": ""}  # fmt: skip
    change = change_params(run, spec.set)
    for call in spec.call:
        outcome = make(run, Fence(call, 0))
        if not outcome.ok:
            break
    target = spec.then or earliest_step(run, change) or step
    run.emit(
        "remedy.applied", step=step, cause=cause, change=change, source=source, next=target,
        evidence=[shown] if shown else [],
    )  # fmt: skip
    go_to(run, target)
    return {"applied": True, "summary": f"remedy for {cause} ({source})", "change": change, "next_step": target}


def _spec(run: Run, source: str, cause: str) -> RemedySpec:
    if source == "diagnosis":
        fix = run.diagnosed_fix(cause)
        changes: dict[str, Any] = dict(fix.get("flags") or {})
        if fix.get("env") and "env" in run.runbook.front.params:
            changes["env"] = {**(run.journal.state.params.get("env") or {}), **fix["env"]}
        return RemedySpec(set=changes)
    remedy = run.step.remedy(cause) if source == "step" else run.common_remedy(cause)
    assert remedy is not None
    return remedy.spec


def change_params(run: Run, changes: dict[str, Any]) -> dict[str, Any]:
    """Apply a remedy's `set`: names with dashes change the flags parameter, others their parameter. Each is an event."""
    filled = expr.resolve(changes, run.bindings())
    name = run.runbook.flags_param
    for key, value in filled.items():
        if key.startswith("--") and name:
            flags = set_flag(run.journal.state.params.get(name) or [], key, value)
            run.emit("param.changed", name=name, value=flags, flag=key, to=value)
        elif key in run.runbook.front.params:
            run.emit("param.changed", name=key, value=coerce(run.runbook.front.params[key], value, key))
    return dict(filled)


def earliest_step(run: Run, change: dict[str, Any]) -> str:
    """The first step, up to this one, whose calls use a changed parameter: its results are out of date."""
    names = {run.runbook.flags_param if key.startswith("--") else key for key in change} - {""}
    for step in run.runbook.steps[: run.runbook.index(run.progress.step) + 1]:
        used = {root for fence in step.calls for text in expr.references(fence.spec.args) for root in expr.roots(text)}
        if names & used:
            return step.id
    return ""


def go_to(run: Run, step: str) -> None:
    """Enter a step again; results bound by it and later ones stay until they are bound anew."""
    title = run.runbook.steps[run.runbook.index(step)].title
    run.emit("step.entered", step=step, title=title, again=True)


def _yes(run: Run, question: str) -> bool:
    outcome = execute(run, prepare(run, ToolCall("ask", "ask_operator", {"question": question}), declared=True))
    return outcome.ok


def make(run: Run, fence: Fence) -> Outcome:
    """Make one of the runbook's own calls (remedy or rollback) outside the model's turn."""
    spec = fence.spec
    arguments = {**spec.args, **({"host": spec.host} if spec.host else {}), **({"as": spec.bind} if spec.bind else {})}
    try:
        if spec.when and expr.evaluate(spec.when, run.bindings()) is not True:
            return Outcome(True, "")
        return execute(run, prepare(run, ToolCall("runbook", spec.tool, arguments), declared=True))
    except (Rejected, InputError) as error:
        event = run.emit("error", what=error.what, where=f"{run.runbook.path}:{fence.line}", hint=error.hint)
        return Outcome(False, event.id, error=error.what, hint=error.hint)


def roll_back(run: Run, step: Step) -> list[Outcome]:
    """The step's declared rollbacks, last first, each through the gate. One that fails does not keep back the others.

    A step that changed nothing has nothing to undo.
    """
    if not _changed_something(run, step):
        return []
    run.rolling_back = True
    try:
        outcomes = []
        for fence in reversed(step.rollbacks):
            if all(run.journal.state.bindings.get(root) is not None for root in _results_used(run, fence)):
                outcomes.append(make(run, fence))
        return outcomes
    finally:
        run.rolling_back = False


def open_items(run: Run) -> list[str]:
    """What the runbook leaves to a person now, in its own words."""
    fences = [fence for step in run.runbook.steps for fence in (*step.calls, *step.rollbacks)]
    bindings: dict[str, Any] = {fence.spec.bind: None for fence in fences if fence.spec.bind}  # not made: null
    bindings |= run.bindings()
    found = []
    for item in run.runbook.front.open:
        with contextlib.suppress(InputError):  # it looks into what is null
            if not item.when or expr.evaluate(item.when, bindings) is True:
                found.append(str(expr.resolve(item.say, bindings)))
    return found


def _changed_something(run: Run, step: Step) -> bool:
    return any(
        call.call.step == step.id and call.verdict.get("tier") not in (None, "R0") and "call.started" in call.events
        for call in run.journal.state.calls.values()
    )


def _results_used(run: Run, fence: Fence) -> set[str]:
    """Names of results (not parameters) in a rollback: while one is missing, there is nothing to undo."""
    texts = [*expr.references(fence.spec.args), *([fence.spec.when] if fence.spec.when else [])]
    used = {root for text in texts for root in expr.roots(text)}
    return used - set(run.journal.state.params) - {"hosts", "run"}
