"""`opsagent approve RUN CALL`: a person's answer to a call that waits, recorded in the run's journal for `resume` to use."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from opsagent.cli.candidates import runs

if TYPE_CHECKING:
    from opsagent.call import Call, Decision, Verdict
    from opsagent.journal.runs import Opened
    from opsagent.journal.state import CallState, RunState


@click.command("approve", short_help="Answer a call that waits for approval.")
@click.argument("run", shell_complete=runs)
@click.argument("call", default="")
@click.option("--yes", is_flag=True, help="Approve without asking (R1 and R2).")
@click.option(
    "--confirm-host", default="", metavar="NAME", help="Approve an R3 call without asking: the name of its host."
)
@click.option("--reject", default=None, metavar="REASON", help="Refuse it; the model reads the reason.")
@click.option("--stop", default=None, metavar="REASON", help="Refuse it and end the run.")
@click.option(
    "--change",
    default=None,
    metavar="JSON",
    help="Other arguments (a whole JSON object); judged and asked about afresh.",
)
@click.option(
    "--happened",
    type=click.Choice(("yes", "no")),
    default=None,
    help="Settle a call whose outcome is unknown, after you looked at the host.",
)
@click.option("--show", "only_show", is_flag=True, help="Only show what waits, and the hash for a pre-approval file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: what was recorded.")
def command(
    run: str, call: str, yes: bool, confirm_host: str, reject: str | None, stop: str | None,
    change: str | None, happened: str | None, only_show: bool, as_json: bool,
) -> int:  # fmt: skip
    """Answer CALL (c12) of RUN. Without CALL: the one that waits.

    The answer holds for exactly this call, on this host, with the facts as they were when it was judged; it is used once,
    and it expires. Then go on with `opsagent resume RUN`. After exit 7: look at the host, then `--happened yes` or `no`.

    \b
    Examples:
      opsagent approve 7f3a --show                      # what waits, and the hash for --approve-file
      opsagent approve 7f3a c12                         # asks here
      opsagent approve 7f3a c12 --yes                   # R1 or R2
      opsagent approve 7f3a c12 --confirm-host kpro5    # R3: the name of the host
      opsagent approve 7f3a c12 --reject "use port 30001 instead"
      opsagent approve 7f3a c12 --happened no           # after exit 7

    Exit: 0 recorded, 2 nothing waits or nobody can be asked, 6 a call that is never allowed.
    """
    from opsagent.cli import fail
    from opsagent.journal.runs import open_run
    from opsagent_tools.errors import OpsError

    try:
        opened = open_run(run)
        if happened is not None:
            return _settled(opened, call, happened == "yes", as_json=as_json)
        waiting = _waiting(opened, call)
        verdict = _verdict(waiting)
        if only_show:
            return _show(waiting, verdict, as_json=as_json)
        if change is not None:
            decision = _change(waiting.call, change)
        else:
            decision = _decision(waiting, verdict, yes=yes, confirm=confirm_host, reject=reject, stop=stop)
        event = _record(opened, waiting, decision)
    except OpsError as error:
        return fail(error, as_json=as_json)
    if as_json:
        click.echo(json.dumps(event, ensure_ascii=False))
    else:
        said = {"approve": "approved", "reject": "refused", "stop": "refused, and the run ends", "change": "changed"}
        click.echo(f"{waiting.call.id} is {said[decision.answer]}; {_then(opened, run)}", err=True)
    return 0


def _then(opened: Opened, run: str) -> str:
    """What happens next: a run is resumed, in a session the assistant makes the call again."""
    from opsagent.mcp_server.book import is_session

    if is_session(opened.state.started):
        return "now the assistant has to make the same call again"
    return f"go on with: opsagent resume {opened.state.run or run}"


def _waiting(opened: Opened, wanted: str) -> CallState:
    """The call that waits. Raises InputError when none does, or more than one and none is named."""
    from opsagent_tools.errors import InputError

    found = {each.call.id: each for each in opened.state.waiting}
    where = str(opened.folder)
    if wanted and wanted in found:
        return found[wanted]
    if wanted and wanted in opened.state.calls:
        status = opened.state.calls[wanted].status
        why = "it was made again, and the newer one counts" if status == "waiting" else f"it is {status}"
        raise InputError(f"{wanted} does not wait for an approval: {why}", where=where)
    if not found:
        raise InputError(
            "no call of this run waits for an approval", where=where, hint="`opsagent show RUN` tells how it ended"
        )
    if wanted or len(found) > 1:
        raise InputError(
            f"name the call{'' if not wanted else f': there is no {wanted}'}",
            where=where,
            hint="waiting: " + ", ".join(found),
        )
    return next(iter(found.values()))


def _verdict(waiting: CallState) -> Verdict:
    """The verdict as it was journaled."""
    from opsagent.call import Reason, Verdict

    data = waiting.verdict
    reasons = tuple(Reason(str(each["rule"]), str(each["text"])) for each in data.get("reasons", []))
    return Verdict(
        data["tier"],
        reasons,
        tuple(data.get("assumed", ())),
        tuple(data.get("effects", ())),
        dict(data.get("facts", {})),
    )


def _show(waiting: CallState, verdict: Verdict, *, as_json: bool) -> int:
    from opsagent.gate.prompt import render

    binding = str(waiting.verdict.get("binding", ""))
    if as_json:
        answer: dict[str, Any] = {"call": waiting.call.model_dump(), "verdict": waiting.verdict, "binding": binding}
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        click.echo(render(waiting.call, verdict, rollback=waiting.rollback))
        click.echo(f"  hash for a pre-approval file: {binding}")
    return 0


def _change(call: Call, text: str) -> Decision:
    """New arguments for a waiting call. Raises InputError for what its tool does not take."""
    from pydantic import ValidationError

    from opsagent.call import Decision
    from opsagent.session import all_tools
    from opsagent_tools.errors import InputError

    try:
        value = json.loads(text)
        all_tools()[call.tool].args.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{call.tool} does not take this: {where}: {first['msg']}", hint="give all its arguments"
        ) from error
    except ValueError as error:
        raise InputError(f"the changed arguments are not JSON ({error})") from error
    return Decision("change", "operator", args=value)


def _decision(
    waiting: CallState, verdict: Verdict, *, yes: bool, confirm: str, reject: str | None, stop: str | None
) -> Decision:
    """From the options, else by asking. Raises InputError when nobody can be asked, PolicyDenied for X."""
    from opsagent.call import Decision
    from opsagent.gate.prompt import TerminalApprover
    from opsagent_tools.errors import InputError, PolicyDenied

    call = waiting.call
    if reject is not None:
        return Decision("reject", "operator", reject)
    if stop is not None:
        return Decision("stop", "operator", stop)
    if verdict.tier == "X":
        raise PolicyDenied(f"{call.tool} is refused in every mode", where=call.host)
    if verdict.tier == "R3" and (yes or confirm):
        if confirm != call.host or not call.host:
            raise InputError("an R3 call needs the name of its host", hint=f"--confirm-host {call.host}")
        return Decision("approve", "operator")
    if yes:
        return Decision("approve", "operator")
    if not sys.stdin.isatty():
        raise InputError(
            "nobody can be asked here",
            hint="--yes (R1, R2), --confirm-host NAME (R3), --reject REASON or --stop REASON",
        )
    decision = TerminalApprover().decide(call, verdict, rollback=waiting.rollback)
    return _change(call, json.dumps(decision.args)) if decision.answer == "change" else decision


def _record(opened: Opened, waiting: CallState, decision: Decision) -> dict[str, Any]:
    """Write the answer into the journal, under its lock. Raises InputError while the run is under way."""
    from datetime import UTC, datetime, timedelta

    from opsagent.config import layers
    from opsagent.gate.policy_file import policy_from
    from opsagent.journal.file import FileJournal

    expires = datetime.now(UTC) + timedelta(seconds=policy_from(layers()).approval_expiry_s)
    more: dict[str, Any] = {"policy": opened.state.policy} if decision.scope != "once" else {}
    more |= {"args": decision.args} if decision.answer == "change" else {}
    with FileJournal.resume(opened.folder) as journal:
        _still(journal.state, waiting, "approval.requested")  # asking took time, and others may have answered meanwhile
        event = journal.append(
            "approval.decided", call=waiting.call.id, answer=decision.answer, by=decision.by, reason=decision.reason,
            scope=decision.scope, binding=str(waiting.verdict.get("binding", "")),
            expires=expires.isoformat(timespec="seconds"), **more,
        )  # fmt: skip
    return {"event": event.id, **event.data}


def _still(state: RunState, shown: CallState, asked: str) -> None:
    """Under the journal's lock: the call is as it was shown, and nobody else settled it. Raises InputError."""
    from opsagent_tools.errors import InputError

    now = state.calls.get(shown.call.id)
    if now is None or now.status != shown.status or now.events.get(asked) != shown.events.get(asked):
        raise InputError(
            f"{shown.call.id} is {now.status if now else 'gone'} by now: nothing was recorded",
            where=state.run, hint="another process answered it or went on with the run; `opsagent show RUN` tells",
        )  # fmt: skip


def _settled(opened: Opened, wanted: str, happened: bool, *, as_json: bool) -> int:
    """A person looked at the host: the call whose outcome was unknown was made, or was not. Raises InputError."""
    from opsagent.journal.file import FileJournal
    from opsagent_tools.errors import InputError

    found = {known.call.id: known for known in opened.state.unsettled if wanted in ("", known.call.id)}
    if len(found) != 1:
        open_calls = ", ".join(each.call.id for each in opened.state.unsettled)
        raise InputError(
            f"{wanted or 'no single call'} has an unknown outcome", where=str(opened.folder),
            hint=f"unknown: {open_calls or 'none'}; `opsagent show RUN` tells how it ended",
        )  # fmt: skip
    (call,) = found
    with FileJournal.resume(opened.folder) as journal:
        _still(journal.state, found[call], "call.started")
        said: dict[str, Any] = {"happened": "yes" if happened else "no", "by": "operator"}
        if (
            happened
        ):  # what it printed nobody knows any more: an empty result, which checks that look at it will not like
            said["result"] = {}
        event = journal.append("call.reconciled", call=call, **said)
    if as_json:
        click.echo(json.dumps({"event": event.id, **event.data}, ensure_ascii=False))
    else:
        click.echo(f"{call} is settled; go on with: opsagent resume {opened.state.run}", err=True)
    return 0
