"""Calls that a cancelled request, or the death of a server, left open: what becomes of them before anything else happens."""

from __future__ import annotations

from opsagent.execute import Prepared, finished, reconcile
from opsagent.journal.state import CallState
from opsagent.run import Run
from opsagent.settling import resumed
from opsagent.signals import StopRun
from opsagent_tools.errors import ExitCode


def settle_all(run: Run) -> None:
    """Before a call that could change something.

    An effect that can be looked for is looked for: it happened, then its result is recorded; it did not, then nothing is
    repeated on nobody's behalf, but an approval that was given still holds for the same call. What is idempotent is made
    again. Raises StopRun (exit 7) for what only a person can find out.
    """
    settle_reads(run)
    for known in [known for known in run.journal.state.calls.values() if known.open]:
        tool = run.tools.get(known.call.tool)
        if tool is None or tool.recovery != "reconcilable":
            resumed(run, known)
            continue
        if known.status == "started":
            run.emit("call.unknown", call=known.call.id, what="the server ended while the call was under way")
        args = tool.args.model_validate(run.restored(known.call.args))
        settled = reconcile(run, Prepared(known.call, tool, args, None, known.bind))
        if settled is None:
            raise StopRun(
                ExitCode.UNKNOWN_OUTCOME, f"{known.call.tool} ({known.call.id}) on {known.call.host} may have happened",
                f"look at the host, then: opsagent approve {run.id} {known.call.id} --happened yes|no",
            )  # fmt: skip
        if isinstance(settled, dict):
            finished(run, known.call, settled, 0.0, {})


def settle_reads(run: Run) -> None:
    """A read whose result nobody will hear: on the host nothing had happened."""
    for known in [known for known in run.journal.state.calls.values() if known.open and reads(run, known)]:
        if known.status == "started":
            run.emit("call.unknown", call=known.call.id, what="the server ended while the call was under way")
        run.emit("call.reconciled", call=known.call.id, happened="no")


def reads(run: Run, known: CallState) -> bool:
    tool = run.tools.get(known.call.tool)
    return known.verdict.get("tier") == "R0" or (tool is not None and tool.recovery == "read_only")
