"""From a proposal to a run: it is predicted, shown, asked, conducted like any run, and its report comes back."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from opsagent.chat.proposal import (
    HANG,
    Proposal,
    ProposeRunArgs,
    assignments,
    drafted,
    planning_call,
    shown,
    unknown_runbook,
)
from opsagent.chat.record import lab_goes_to
from opsagent.chat.talk import Chat, read
from opsagent.execute import Rejected
from opsagent.protocols import ToolCall
from opsagent.report.markdown import number
from opsagent.report.model import StatusReport
from opsagent.runbook.model import Runbook
from opsagent.session import Session, Wish, begin, conduct, known_secrets
from opsagent.signals import Signal
from opsagent_tools.errors import InputError

QUESTION = "Run it? [y]es · [c]hange · [n]o: "
Answer = Literal["yes", "no", "change"]


def propose(chat: Chat, args: ProposeRunArgs) -> dict[str, Any]:
    """What the model proposed, up to the report. Returns what it reads of it."""
    try:
        book = chat.books.get(args.runbook)
        if book is None:
            raise unknown_runbook(args.runbook, chat.books)
        return offer(chat, book, args.hosts, args.params, args.why)
    except InputError as error:
        event = chat.run.emit("model.rejected", what=error.what, hint=error.hint, tool="propose_run")
        return {"event": event.id, "ok": False, "error": error.what, "hint": error.hint}


def offer(chat: Chat, book: Runbook, hosts: Mapping[str, str], params: Mapping[str, Any], why: str) -> dict[str, Any]:
    """Show a run, ask, and make it. Raises InputError for parameters or roles that do not fit the runbook."""
    hosts, params = dict(hosts), dict(params)
    while True:
        draft = drafted(book, chat.ground.for_run(book, hosts), params, why)
        for name, value in known_secrets(book, draft.params).items():
            chat.run.journal.redactor.add(value, name)
        proposal = predicted(chat, draft)
        show(chat, proposal)
        chat.run.emit(
            "note", kind="chat.proposal", runbook=book.name, hosts=proposal.places.roles, params=proposal.given,
            why=why, prediction=proposal.evidence,
        )  # fmt: skip
        answer, words = decided(chat)
        change = assignments(words, proposal) if answer == "change" else None
        chat.run.emit("note", kind="chat.decided", answer=answer, reason=words, by="operator")
        if change is None:
            break
        params, hosts = {**params, **change[0]}, {**hosts, **change[1]}
    if answer == "yes":
        return {"ok": True, "answer": "yes", **summary(carry_out(chat, proposal))}
    proposal.places.close()
    given = {"reason": chat.run.journal.redactor.clean(words)} if words else {}
    return {"ok": False, "answer": answer, **given, "hint": "nothing was run"}


def predicted(chat: Chat, proposal: Proposal) -> Proposal:
    """The proposal with what the planner says of it on its host now; a plan that cannot be made says why."""
    planned = planning_call(proposal)
    if planned is None:
        return proposal
    role, arguments = planned
    host = proposal.places.roles.get(role, "")
    try:
        outcome = read(chat, ToolCall("prediction", "estimate_vram", {**arguments, "host": host}))
    except (Rejected, Signal) as error:
        return replace(proposal, unpredicted=f"cannot be predicted: {error}")
    if outcome.result is None:
        return replace(
            proposal, unpredicted=f"not yet ({outcome.error} [{outcome.event}]); the run plans before it loads"
        )
    return replace(proposal, prediction=outcome.result, evidence=outcome.event)


def show(chat: Chat, proposal: Proposal) -> None:
    chat.view.title(f"Proposed run: {proposal.runbook.name}")
    for line in shown(proposal, approve=approvals(chat), tier=lambda name: chat.run.tools[name].tier):
        chat.view.say(line, hang=HANG)


def approvals(chat: Chat) -> str:
    """Who answers inside the run, in words."""
    mode = chat.approve
    if not mode and chat.ground.places.simulated:
        return "the scenario answers, in the open (/approve ask: you do)"
    if not mode:
        mode = "ask" if chat.interactive else "declared"
    return {
        "ask": "declared writes run; what disrupts is asked, what destroys needs the host's name typed",
        "declared": "declared writes run; anything more stops the run until `/approve RUN CALL`",
        "never": "reads only; any write ends the run",
    }[mode]


def decided(chat: Chat) -> tuple[Answer, str]:
    """The person's answer and their words. No answer is No."""
    try:
        first, _, words = chat.ask(QUESTION).strip().partition(" ")
        first, words = first.lower().rstrip(",.;:"), words.strip()
        if first in ("y", "yes"):
            return "yes", words
        if first in ("c", "change"):
            return "change", words or chat.ask("What should be different (name=value …, or in words)? ").strip()
        if first in ("n", "no", ""):
            # a script's next line is its next line, not a reason
            return "no", words or (chat.ask("Why not (may be empty)? ").strip() if chat.interactive else "")
        return "no", f"{first} {words}".strip()
    except EOFError:
        return "no", "no answer"
    except KeyboardInterrupt:
        return "no", "cancelled"


# --- the run -------------------------------------------------------------------------------------------------------


def carry_out(chat: Chat, proposal: Proposal) -> StatusReport:
    """Make the run: its own id, folder and journal. Ctrl-C does what it does in `opsagent run`."""
    wish = Wish(
        runbook=proposal.runbook, places=proposal.places, params=proposal.given, llm=chat.settings.run_llm,
        approve=chat.approve, approve_file=chat.settings.approve_file, interactive=chat.interactive,
        notice=chat.view.say,
    )  # fmt: skip
    return follow(chat, lambda: begin(wish, watcher=chat.watcher(wish)))


def follow(chat: Chat, opened: Callable[[], Session]) -> StatusReport:
    """Conduct an opened run, note it in the chat, show what came of it."""
    try:
        with deferred() as interrupt:
            session = opened()
            with session:
                noted(chat, session.run.id, session.folder, "begun")
                session.interrupted = bool(interrupt)
                report = conduct(session)
    finally:
        lab_goes_to(chat.ground, chat.session.folder)
    ended(chat, report, session.folder)
    return report


@contextlib.contextmanager
def deferred() -> Iterator[list[int]]:
    """A Ctrl-C while a run is being set up is meant for the run: it is kept (the list is not empty) until it can listen."""
    kept: list[int] = []
    try:
        before = signal.signal(signal.SIGINT, lambda number, _frame: kept.append(number))
    except ValueError:  # not in the main thread: nobody can interrupt us there
        yield kept
        return
    try:
        yield kept
    finally:
        signal.signal(signal.SIGINT, before)


def noted(chat: Chat, run: str, folder: Path, phase: str, **more: Any) -> None:
    chat.runs[run] = str(folder.absolute())
    chat.run.emit("note", kind="chat.run", run=run, folder=str(folder.absolute()), phase=phase, **more)


def ended(chat: Chat, report: StatusReport, folder: Path, *, after: str = "") -> None:
    """Note the end of a run and show what came of it. `after`: what can be done next, where the status does not say it."""
    noted(chat, report.run, folder, "ended", status=report.status, exit_code=report.exit_code)
    chat.report, chat.last_code = report, report.exit_code
    mark = f' · SIMULATED (lab "{report.lab}")' if report.simulated else ""
    chat.view.title(f"{report.headline or report.runbook} · {report.status}{mark}")
    for line in short(report, after):
        chat.view.say(line)


# --- what came of it -----------------------------------------------------------------------------------------------


def short(report: StatusReport, after: str = "") -> list[str]:
    """The report in a few lines; `/report` has all of it."""
    lines: list[str] = []
    if report.failed is not None:
        proof = f"  [{', '.join(report.failed.evidence)}]" if report.failed.evidence else ""
        lines.append(f"  {report.failed.text}{proof}")
    if report.endpoint is not None:
        lines.append(f"  {report.endpoint.url}   model id {report.endpoint.model_id}")
    for limit in report.limits:
        said = f", predicted {number(limit.predicted)}" if limit.predicted is not None else ""
        lines.append(f"  {limit.name.replace('_', ' '):22}{number(limit.value):>10}{said}   {limit.bound_by}")
    lines += [f"  open: {text}" for text in report.open[:4]]
    after = after or {
        "waiting-approval": f"/approve {report.run}, then /resume {report.run}",
        "interrupted": f"/resume {report.run}", "transient": f"/resume {report.run}",
        "unknown-outcome": f"look at the host, then /resume {report.run}",
    }.get(report.status, "/report has all of it")  # fmt: skip
    return [*lines, f"  run {report.run} · {after}"]


def summary(report: StatusReport) -> dict[str, Any]:
    """What the model reads of a report: everything but what only proves or decorates."""
    whole = report.model_dump(mode="json")
    kept = (
        "run", "runbook", "status", "exit_code", "simulated", "headline", "limits", "why", "trade_offs", "behaviours",
        "incidents", "open", "failed", "weight_loads",
    )  # fmt: skip
    found = {key: whole[key] for key in kept if whole[key] not in (None, "", [], {})}
    found["verification"] = {
        "ok": sum(probe.ok is True for probe in report.verification),
        "failed": [f"{probe.probe}: {probe.detail}" for probe in report.verification if probe.ok is False],
    }
    if report.endpoint is not None:
        found["endpoint"] = report.endpoint.model_dump()
    if report.deployment is not None:
        found["command"] = shlex.join(report.deployment.argv)
    cited: dict[str, Any] = _cited(found, report.run)
    return cited


def _cited(value: Any, run: str) -> Any:
    """Events of the run under names that cannot be taken for the chat's own: `7f3a/e58`."""
    if isinstance(value, dict):
        return {
            key: [f"{run}/{event}" for event in item] if key == "evidence" else _cited(item, run)
            for key, item in value.items()
        }
    return [_cited(item, run) for item in value] if isinstance(value, list) else value


def as_text(report: StatusReport) -> str:
    return json.dumps(summary(report), ensure_ascii=False)
