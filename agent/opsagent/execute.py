"""One call, from the model's words to an event: validate → classify → approve → journal → run → journal.

Nothing runs whose intent is not on disk, and nothing is repaired: arguments that do not validate are an error result to
the model. A lost link is an unknown outcome, settled by the tool's recovery class before anything else happens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from opsagent.call import Call, Decision, Verdict
from opsagent.control import AskOperatorResult
from opsagent.protocols import ToolCall
from opsagent.run import Run
from opsagent.runbook import expr
from opsagent.signals import NeedApproval, StopRun
from opsagent_tools.errors import (
    ExitCode,
    HostError,
    HostUnreachable,
    InputError,
    OpsError,
    OutcomeUnknown,
    PolicyDenied,
    suggest,
)
from opsagent_tools.tool import Context, Progress, Result, Tool

RERUNS = 2
"""How often a read is made again after a lost link."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the loop and the model learn of a call."""

    ok: bool
    event: str
    """The event that records it (`e41`)."""
    result: dict[str, Any] | None = None
    error: str = ""
    hint: str = ""
    cause: str | None = None
    refused: bool = False
    """The operator or the policy said no: nothing was executed."""

    def message(self) -> dict[str, Any]:
        """The JSON object that the model reads."""
        given = {"result": self.result, "error": self.error, "hint": self.hint, "cause": self.cause}
        return {"event": self.event, "ok": self.ok, **{key: value for key, value in given.items() if value}}


class Rejected(OpsError):
    """The model's call cannot be used as it is; it gets the reason and may try again."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that is valid: ready to be judged."""

    call: Call
    tool: Tool[Any, Any]
    args: BaseModel
    fence: int | None = None
    bind: str = ""
    optional: bool = False
    instead_of: str = ""
    """The call that an operator changed into this one."""


def prepare(run: Run, wanted: ToolCall, *, declared: bool = False) -> Prepared:
    """Validate what the model wrote. Raises Rejected with a short reason; nothing was executed.

    `declared` is true for calls that come from the runbook's own text (rollbacks and remedies).
    """
    tool = run.tools.get(wanted.name)
    if tool is None:
        raise Rejected(
            f"no tool {wanted.name!r}; nothing was executed", hint=suggest(wanted.name, sorted(run.offered()))
        )
    raw = _arguments(wanted)
    role = str(raw.pop("host", "") or "") or run.only_role()
    bind = str(raw.pop("as", "") or "")
    on_host = tool.name not in run.control
    if on_host and not run.role_names.get(role):
        raise Rejected(f"{tool.name}: no host in the role {role!r}", hint=suggest(role, list(run.role_names)))
    try:
        args = tool.args.model_validate(expr.resolve(raw, run.bindings()))
    except ValidationError as error:
        raise Rejected(f"{tool.name}: {_short(error)}; nothing was executed", hint="see its parameters") from error
    except InputError as error:
        raise Rejected(f"{tool.name}: {error.what}; nothing was executed", hint="use names that are bound") from error
    index = None if declared else run.fence_index(tool.name, role, bind)
    spec = run.step.calls[index].spec if index is not None else None
    call = Call(
        id=run.next_call_id(), tool=tool.name, role=role if on_host else "",
        host=run.role_names.get(role, "") if on_host else "", args=args.model_dump(mode="json", by_alias=True),
        step=run.progress.step, declared=declared or run.declares(tool.name, role, args), rollback=run.rolling_back,
    )  # fmt: skip
    return Prepared(call, tool, args, index, bind or (spec.bind if spec else ""), bool(spec and spec.optional))


def _arguments(wanted: ToolCall) -> dict[str, Any]:
    if isinstance(wanted.arguments, dict):
        return dict(wanted.arguments)
    try:
        value = json.loads(wanted.arguments or "{}")
    except ValueError as error:
        raise Rejected(f"{wanted.name}: the arguments are malformed JSON ({error}); nothing was executed") from error
    if not isinstance(value, dict):
        raise Rejected(f"{wanted.name}: the arguments are not a JSON object; nothing was executed")
    return value


def _short(error: ValidationError) -> str:
    found = [f"{'.'.join(str(p) for p in item['loc']) or 'arguments'}: {item['msg']}" for item in error.errors()]
    return "; ".join(found[:4]) + ("; …" if len(found) > 4 else "")


@contextmanager
def looking() -> Iterator[None]:
    """While we only look at a host, a lost link leaves nothing unknown: the call itself was not made."""
    try:
        yield
    except OutcomeUnknown as error:
        raise HostUnreachable(error.what, where=error.where, hint=error.hint) from error


def execute(run: Run, ready: Prepared) -> Outcome:
    """Judge, approve, journal and run a prepared call.

    Raises:
        NeedApproval: nobody could be asked; the intent is on disk and the run can be resumed.
        StopRun: the operator ended the run, or the outcome stays unknown.
    """
    call = ready.call
    try:
        with looking():
            verdict = run.gate.judge(call)
    except OpsError as error:
        _intent(run, ready, None)
        return _failed(run, call, error)
    _intent(run, ready, verdict)
    if run.dry and verdict.tier != "R0":
        return refused(run, ready, f"dry run: a {verdict.tier} call is not made", by="dry-run")
    return admit_and_perform(run, ready, verdict)


def admit_and_perform(run: Run, ready: Prepared, verdict: Verdict) -> Outcome:
    call = ready.call
    try:
        decision = approved(run, ready, verdict)
        if decision.answer == "change":
            return changed(run, ready, decision.args or {}, decision.by)
        if decision.answer != "approve":
            _unbind(run, ready)
            return _refusal(run, decision.by, decision.reason)
        if verdict.tier != "R0":
            with looking():
                run.gate.recheck(call, verdict)
    except PolicyDenied as error:
        return denied(run, ready, error)
    return perform(run, ready)


def _intent(run: Run, ready: Prepared, verdict: Verdict | None) -> None:
    """`optional` calls may be refused and the run goes on; in a dry run that holds for every call."""
    more = {"instead_of": ready.instead_of} if ready.instead_of else {}
    told = _verdict(verdict, binding(run, ready.call, verdict)) if verdict else None
    run.emit(
        "call.intent", call=ready.call.model_dump(), bind=ready.bind, fence=ready.fence,
        optional=ready.optional or run.dry, verdict=told, **more,
    )  # fmt: skip


def binding(run: Run, call: Call, verdict: Verdict) -> str:
    """What an approval is bound to, as it may be written down: without secrets."""
    return verdict.binding(call, lambda value: run.journal.redactor.value(value)[0])


def _verdict(verdict: Verdict, binding: str) -> dict[str, Any]:
    return {
        "tier": verdict.tier,
        "reasons": [asdict(reason) for reason in verdict.reasons],
        "assumed": list(verdict.assumed),
        "effects": list(verdict.effects),
        "facts": verdict.facts,
        "binding": binding,
    }


def approved(run: Run, ready: Prepared, verdict: Verdict) -> Decision:
    """The decision on a call, journaled. A `wait` raises NeedApproval, a `stop` StopRun."""
    call, bound = ready.call, binding(run, ready.call, verdict)
    rollback = "; ".join(f"{r.spec.tool} {json.dumps(r.spec.args)}" for r in run.step.rollbacks) if call.step else ""

    def asking() -> None:
        run.emit("approval.requested", call=call.id, tier=verdict.tier, binding=bound, rollback=rollback)

    decision = run.gate.admit(call, verdict, rollback=rollback, asking=asking)
    if decision.answer == "wait":
        raise NeedApproval(call.id, f"{call.tool} on {call.host or 'the run'} is {verdict.tier} and needs approval")
    more: dict[str, Any] = {"policy": run.policy} if decision.scope != "once" else {}
    more |= {"args": decision.args} if decision.answer == "change" else {}
    run.emit(
        "approval.decided", call=call.id, answer=decision.answer, by=decision.by, reason=decision.reason,
        scope=decision.scope, binding=bound, **more,
    )  # fmt: skip
    if decision.answer == "stop":
        raise ended_by_operator(call, decision.reason)
    return decision


def ended_by_operator(call: Call, reason: str) -> StopRun:
    return StopRun(ExitCode.DENIED, f"the operator ended the run at {call.tool}: {reason}")


def changed(run: Run, ready: Prepared, new: Mapping[str, Any], by: str) -> Outcome:
    """The operator changed the arguments: they are validated and judged afresh, as a call of their own."""
    call = ready.call
    try:
        args = ready.tool.args.model_validate(new)
    except ValidationError as error:
        return refused(run, ready, f"the changed arguments are not valid: {_short(error)}", by=by)
    fresh = call.model_copy(
        update={"id": run.next_call_id(), "args": args.model_dump(mode="json", by_alias=True), "declared": False}
    )
    return execute(run, Prepared(fresh, ready.tool, args, ready.fence, ready.bind, ready.optional, call.id))


def perform(run: Run, ready: Prepared) -> Outcome:
    """Run an approved call and journal its end. `call.started` is on disk before anything happens."""
    call = ready.call
    if run.budget is not None:
        run.budget.call()
    writes = _tier(run, call) != "R0"
    if writes:
        with looking():  # what was approved stays approved: resume uses it
            run.lock(call.role)
        run.picture(call.role, "before")
        if run.watch is not None:
            run.watch.begin(run, call.role)
    outcome = _perform(run, ready)
    if writes and run.watch is not None:
        run.watch.after(run, call)
    return outcome


def _perform(run: Run, ready: Prepared) -> Outcome:
    """The call itself, made again where that is safe."""
    call = ready.call
    reruns = 0
    while True:
        run.emit("call.started", call=call.id)
        began = run.clock.now()
        blobs: dict[str, str] = {}
        try:
            result = _run_tool(run, ready, blobs)
        except OutcomeUnknown as error:
            run.emit("call.unknown", call=call.id, what=error.what)
            settled = reconcile(run, ready, reruns)
            if settled is None:
                hint = f"look at the host, then: opsagent approve {run.id} {call.id} --happened yes|no"
                raise StopRun(ExitCode.UNKNOWN_OUTCOME, f"{call.tool} on {call.host}: {error.what}", hint) from error
            if settled == "rerun":
                reruns += 1
                continue
            assert isinstance(settled, dict)
            return finished(run, call, settled, run.clock.now() - began, blobs)
        except OpsError as error:
            return _failed(run, call, error)
        if _cut_short(run, ready.tool, result):
            run.emit(
                "call.unknown", call=call.id, what="the run was stopped while the call was under way", stopped=True
            )
            raise _stopped(run)
        return finished(run, call, result, run.clock.now() - began, blobs)


def _stopped(run: Run) -> StopRun:
    return StopRun(ExitCode.INTERRUPTED, "stopped by the operator", f"opsagent resume {run.id}")


def _cut_short(run: Run, tool: Tool[Any, Any], result: dict[str, Any]) -> bool:
    """Whether the tool may have returned early because the run was stopped: what it says then is no outcome.

    Resume settles the call like one that lost its link (read again, or looked for on the host); where that is not
    possible, or costs more than it can tell, the result counts.
    """
    if not run.stopped() or tool.recovery == "non_retriable":
        return False
    return tool.recovery != "idempotent" or _is_failure(tool, result)


def _tier(run: Run, call: Call) -> str:
    known = run.journal.state.calls.get(call.id)
    return str((known.verdict if known else {}).get("tier") or "R0")


def _run_tool(run: Run, ready: Prepared, blobs: dict[str, str]) -> dict[str, Any]:
    call = ready.call

    def real() -> BaseModel:
        if call.tool == "ask_operator":  # whoever approved the question has answered it
            return AskOperatorResult(answer="yes")
        result = ready.tool.run(run.open_host(call.role), ready.args, _context(run, call, blobs))
        assert isinstance(result, BaseModel)
        return result

    if run.execute_tool is not None:
        return run.execute_tool(call, real)
    return real().model_dump(mode="json", by_alias=True)


def _context(run: Run, call: Call, blobs: dict[str, str]) -> Context:
    """What a tool is lent; outputs that it keeps are named in `blobs`."""

    def keep(name: str, data: bytes) -> str:
        blobs[name] = run.journal.blob(data, name=name)
        return blobs[name]

    def progress(made: Progress) -> None:
        run.watcher.on_progress(call, replace(made, text=run.journal.redactor.clean(made.text)))
        if run.locks is not None:
            run.locks.renew(run, call.role)

    return Context(
        run_id=run.id, call_id=call.id, clock=run.clock, keep=keep, stopped=run.stopped, secrets=run.secrets,
        progress=progress,
        history=run.history.get(call.host, {}), lookup=run.open_host,
    )  # fmt: skip


def reconcile(run: Run, ready: Prepared, reruns: int = 0) -> dict[str, Any] | str | None:
    """Settle an unknown outcome: a result (it happened), `rerun` (make it again), or None (ask a person)."""
    call, tool = ready.call, ready.tool
    if tool.recovery in ("read_only", "idempotent") or _tier(run, call) == "R0":  # a command that only reads is a read
        happened = "rerun" if reruns < RERUNS else "unclear"
        run.emit("call.reconciled", call=call.id, happened=happened)
        return "rerun" if reruns < RERUNS else None
    if tool.recovery == "reconcilable" and tool.probe is not None and reruns < RERUNS:
        try:
            found = tool.probe(run.open_host(call.role), ready.args, _context(run, call, {}))
        except HostError:
            run.emit("call.reconciled", call=call.id, happened="unclear")
            return None
        if run.stopped():  # it may have followed the call for minutes, and given up because of that
            raise _stopped(run)
        run.emit("call.reconciled", call=call.id, happened="no" if found is None else "yes")
        return "rerun" if found is None else found.model_dump(mode="json", by_alias=True)
    run.emit("call.reconciled", call=call.id, happened="unclear")
    return None


def finished(run: Run, call: Call, result: dict[str, Any], took: float, blobs: dict[str, str]) -> Outcome:
    failed = _is_failure(run.tools[call.tool], result)
    event = run.emit(
        "call.finished", call=call.id, ok=not failed, result=result, duration_s=round(took, 3), output=blobs
    )
    stored = event.data["result"]
    return Outcome(not failed, event.id, stored, cause=stored.get("cause") if failed else None)


def _is_failure(tool: Tool[Any, Any], result: dict[str, Any]) -> bool:
    """Whether the result itself shows a failure (`Result.failed`); a result that no longer validates is none."""
    try:
        value = tool.result.model_validate(result)
    except ValidationError:
        return False
    return isinstance(value, Result) and value.failed


def _failed(run: Run, call: Call, error: OpsError) -> Outcome:
    cause = getattr(error, "cause", None)
    event = run.emit(
        "call.failed", call=call.id, what=error.what, where=error.where, hint=error.hint,
        exit_code=int(error.exit_code), cause=cause,
    )  # fmt: skip
    return Outcome(False, event.id, error=event.data["what"], hint=event.data["hint"], cause=cause)


def refused(run: Run, ready: Prepared, reason: str, *, by: str) -> Outcome:
    """A call that is not made for a reason that no approver gave: policy, dry run, arguments that do not validate."""
    run.emit("approval.decided", call=ready.call.id, answer="reject", by=by, reason=reason, scope="once", binding="")
    _unbind(run, ready)
    return _refusal(run, by, reason)


def _unbind(run: Run, ready: Prepared) -> None:
    """A refused call that the runbook calls optional binds null: later expressions can ask whether it happened."""
    if ready.bind and (ready.optional or run.dry):
        run.emit("note", bind=ready.bind, value=None, why=f"{ready.call.tool} was not made")


def _refusal(run: Run, by: str, reason: str) -> Outcome:
    decided = next(reversed(run.journal.state.calls.values())).events.get("approval.decided", "")
    return Outcome(False, decided, error=f"refused by {by}: {reason or 'no reason given'}", refused=True)


def denied(run: Run, ready: Prepared, error: PolicyDenied) -> Outcome:
    return refused(run, ready, error.what, by="policy")
