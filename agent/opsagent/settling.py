"""After a stop: calls left open, waiting, approved or changed are settled before anything else happens."""

from __future__ import annotations

from opsagent.execute import (
    Outcome,
    Prepared,
    admit_and_perform,
    binding,
    changed,
    denied,
    ended_by_operator,
    finished,
    looking,
    perform,
    reconcile,
    refused,
)  # fmt: skip
from opsagent.journal.state import CallState
from opsagent.redact import lost_secrets
from opsagent.run import Run
from opsagent.signals import StopRun
from opsagent_tools.errors import ExitCode, InputError, PolicyDenied

AUTOMATIC = ("policy", "runbook", "dry-run")
"""Deciders whose approval can be derived again at any time."""


def settle(run: Run) -> None:
    """After a crash or an approval: settle calls whose effect is unknown, make those that were approved meanwhile.

    Raises StopRun when the operator ended the run while it was away, or when an outcome stays unknown.
    """
    for known in list(run.journal.state.calls.values()):
        if known.decision.get("answer") == "stop":
            raise ended_by_operator(known.call, str(known.decision.get("reason") or ""))
        if known.open or known.status in ("approved", "changed"):
            resumed(run, known)


def resumed(run: Run, known: CallState) -> Outcome | None:
    """Go on with a call that a stop left open: settle what may have happened, ask again, or use an approval.

    An approval that a person gave meanwhile is used once, if the facts it was bound to still hold. One that the policy
    gave is worth nothing now: the model makes the call again.
    """
    tool = run.tools.get(known.call.tool)
    if tool is None or not run.progress.step:
        return None
    meta = run.progress.meta(known.call.id)
    given = known.call.model_copy(update={"args": run.restored(known.call.args)})
    ready = Prepared(
        given, tool, tool.args.model_validate(given.args), meta.get("fence"), known.bind, bool(meta.get("optional"))
    )
    if known.status == "changed":
        return changed(run, ready, run.restored(known.decision.get("args") or {}), str(known.decision.get("by") or ""))
    lost = [] if known.open else lost_secrets(given.args)
    if lost and known.status in ("waiting", "approved"):
        why = f"the journal does not keep secrets ({', '.join(lost)}): make the call again"
        return refused(run, ready, why, by="policy")
    if known.open:
        return _settle(run, ready, known)
    if known.status == "waiting":
        with looking():
            verdict = run.gate.judge(ready.call)
        return admit_and_perform(run, ready, verdict)
    if known.status == "approved" and known.decision.get("by") not in AUTOMATIC:
        return approved_meanwhile(run, ready, known)
    return None


def approved_meanwhile(run: Run, ready: Prepared, known: CallState) -> Outcome:
    """Make a call that a person approved, if the approval still holds and is for what would happen now."""
    with looking():
        verdict = run.gate.judge(ready.call)
    if run.gate.expired(known.decision):
        return refused(run, ready, "the approval has expired", by="policy")
    if binding(run, ready.call, verdict) != known.decision.get("binding"):
        return refused(run, ready, "what was approved is no longer what would happen", by="policy")
    try:
        with looking():
            run.gate.recheck(ready.call, verdict)
    except PolicyDenied as error:
        return denied(run, ready, error)
    return perform(run, ready)


def _settle(run: Run, ready: Prepared, known: CallState) -> Outcome:
    if known.status == "started":
        run.emit("call.unknown", call=known.call.id, what="the run ended while the call was under way")
    settled = reconcile(run, ready)
    if settled is None:
        raise StopRun(
            ExitCode.UNKNOWN_OUTCOME, f"{known.call.tool} ({known.call.id}) on {known.call.host} may have happened",
            f"look at the host, then: opsagent approve {run.id} {known.call.id} --happened yes|no",
        )  # fmt: skip
    if isinstance(settled, str):
        if lost := lost_secrets(ready.call.args):
            hint = "give it again: the same parameter with -p, or the same environment variable"
            raise InputError(f"{known.call.tool} needs {', '.join(lost)}, which no journal keeps", hint=hint)
        return perform(run, ready)
    return finished(run, ready.call, settled, 0.0, {})
