"""An old run opened again: to go on with it, to stop its server, or to undo what it did.

The same journal goes on. What the run was begun with (runbook, policy, hosts) is compared with what is there today; a
difference is accepted only in the open, and is an event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsagent import steps
from opsagent.approving import fingerprint, grants_of, policy_of
from opsagent.execute import Outcome
from opsagent.gate import Gate
from opsagent.journal import FileJournal
from opsagent.journal.lock import is_live
from opsagent.journal.runs import find_run, open_run
from opsagent.mcp_server.book import is_session
from opsagent.places import Places, reopen_places
from opsagent.progress import Progress
from opsagent.report.build import rebuild
from opsagent.report.model import Claim, StatusReport
from opsagent.report.write import write_report
from opsagent.run import Watcher
from opsagent.runbook.model import Call as Fence
from opsagent.runbook.model import CallSpec, Runbook
from opsagent.runbook.parse import parse
from opsagent.session import (
    LAB_STATE,
    Session,
    Wish,
    all_tools,
    assemble,
    close_run,
    interruptible,
    known_secrets,
)
from opsagent.settling import AUTOMATIC
from opsagent.signals import NeedApproval, StopRun
from opsagent_tools.errors import ExitCode, InputError, OpsError, worst

HOSTS = "the hosts"
"""How a drift of the hosts file is named."""
OVER = ("verified", "failed", "denied")
"""How a run ended that does not go on."""


@contextmanager
def reopened(
    ref: str, *, mode: str, watcher: Callable[[Wish], Watcher], llm: str = "", approve: str = "",
    accept_drift: bool = False, secrets: Mapping[str, str] | None = None,
    interactive: bool = False, notice: Callable[[str], None] = lambda _text: None,
    places_of: Callable[[Runbook, Mapping[str, Any]], Places | None] = lambda _book, _started: None,
) -> Iterator[Session]:  # fmt: skip
    """A run of this id or path, ready to go on; `run.resumed` is written. `secrets`: the journal keeps none, so again.

    `places_of` (a chat's, whose lab is up already) says where its hosts are; None: where they were.

    Raises:
        InputError: no such run, it is in use, it is over (mode `resume`), or something drifted and nobody accepted it.
    """
    folder = find_run(ref)
    journal = FileJournal.resume(folder)
    places: Places | None = None
    try:
        started = journal.state.started
        if not started:
            raise InputError("this run never began", where=str(folder), hint="start it anew with opsagent run")
        if mode == "resume" and journal.state.status in OVER:
            raise InputError(
                f"this run is over: {journal.state.status}", where=str(folder), hint=f"opsagent show {ref}"
            )
        if mode == "resume" and is_session(started):
            raise InputError(
                "this run is an assistant's session", where=str(folder), hint=f"opsagent mcp --resume {started['run']}"
            )
        runbook, drift = _runbook(journal, started)
        lab_state = folder / LAB_STATE
        places = places_of(runbook, started)
        if places is None:
            places = reopen_places(runbook, started, state=lab_state if started.get("lab") else None)
        if places.lab is not None:
            places.lab.state = lab_state
        wish = Wish(
            runbook=runbook, places=places, params={**journal.state.params, **_secrets(runbook, secrets or {})},
            llm=llm or str(started.get("model") or ""),
            approve=approve or str(started.get("approve") or ""), approve_file=str(started.get("approve_file") or ""),
            dry=bool(started.get("dry")), folder=folder, interactive=interactive, notice=notice,
        )  # fmt: skip
        drift += _drift(wish, started)
        if drift and not accept_drift:
            what = ", ".join(item["what"] for item in drift)
            raise InputError(
                f"changed since the run began: {what}", where=str(folder), hint="look at it, then add --accept-drift"
            )
        for name, value in known_secrets(runbook, wish.params).items():
            journal.redactor.add(value, name)
        foreign = asked_elsewhere(journal, wish.places.fingerprint())
        _ask_again(journal, foreign)
        session = assemble(wish, str(started["run"]), folder, journal, all_tools(), watcher(wish))
        if foreign and isinstance(session.run.gate, Gate):  # likewise what was allowed beyond one call
            calls = {call: known for call, known in journal.state.calls.items() if call not in foreign}
            session.run.gate.grants = grants_of(replace(journal.state, calls=calls), session.run.policy)
        session.run.progress = Progress.of(journal.events())
        session.run.emit("run.resumed", mode=mode)
        for item in drift:
            if item["what"].startswith("the runbook"):  # what the run goes on with is a part of it
                item["blob"] = journal.blob(runbook.text.encode(), name="runbook.md")
            session.run.emit("drift.accepted", **item)
    except BaseException:
        journal.close()
        if places is not None:
            places.close()
        raise
    with session:
        yield session


def _secrets(runbook: Runbook, given: Mapping[str, str]) -> Mapping[str, str]:
    """Secret parameters, which may be given again. Raises InputError for any other: the run keeps those it has."""
    for name in given:
        spec = runbook.front.params.get(name)
        if spec is None or not spec.secret:
            secret = ", ".join(name for name, spec in runbook.front.params.items() if spec.secret)
            raise InputError(
                f"{name!r} is no secret parameter of {runbook.name}", where=runbook.path,
                hint=f"secret ones: {secret or 'none'}; the others are in the journal",
            )  # fmt: skip
    return given


def asked_elsewhere(journal: FileJournal, today: str) -> set[str]:
    """Calls that were announced under another hosts file than today's (sha256): their host's name may lead elsewhere now."""
    hosts, found = str(journal.state.started.get("inventory_sha256") or ""), {}
    for event in journal.events():
        if event.type == "drift.accepted" and event.data.get("what") == HOSTS:
            hosts = str(event.data.get("sha256") or "")
        elif event.type == "call.intent":
            found[str(event.data["call"]["id"])] = hosts
    return {call for call, where in found.items() if where != today}


def _ask_again(journal: FileJournal, foreign: set[str]) -> None:
    """An approval is for a machine, not for its name: where the hosts changed, the call waits again."""
    for call in foreign:
        known = journal.state.calls[call]
        if known.status == "approved" and known.decision.get("by") not in AUTOMATIC:
            binding = known.verdict.get("binding", "")
            journal.append(
                "approval.requested",
                call=call,
                tier=known.verdict.get("tier"),
                binding=binding,
                rollback=known.rollback,
            )


def missing_report(ref: str) -> tuple[StatusReport, Path] | None:
    """Write the report of a run that is over and died before its report was there; None when nothing is missing."""
    opened = open_run(ref)
    ends = [event for event in opened.log.events if event.type == "run.finished"]
    there = all((opened.folder / name).exists() for name in ("report.json", "report.md"))
    if there or opened.state.status not in OVER or is_live(opened.folder):
        return None
    report = rebuild(opened.log.events[: ends[-1].seq])
    write_report(opened.folder, report, opened.log.events[: ends[-1].seq - 1])
    return report, opened.folder


def _runbook(journal: FileJournal, started: dict[str, Any]) -> tuple[Runbook, list[dict[str, Any]]]:
    """The runbook of the run: today's file when it changed and that is accepted, else the recorded text."""
    named = started["runbook"]
    text, path = journal.read_blob(named["sha256"]).decode(), str(named.get("path") or "runbook.md")
    drift: list[dict[str, Any]] = []
    file = Path(path)
    if file.is_file():
        today = file.read_text(encoding="utf-8")
        if hashlib.sha256(today.encode()).hexdigest() != hashlib.sha256(text.encode()).hexdigest():
            drift.append({"what": f"the runbook {path}", "sha256": hashlib.sha256(today.encode()).hexdigest()})
            text = today
    runbook, faults = parse(text, path)
    if runbook is None or faults:
        raise InputError(f"the runbook does not compile: {faults[0]}", where=path, hint=f"opsagent lint {path}")
    return runbook, drift


def _drift(wish: Wish, started: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    policy = fingerprint(policy_of(wish.runbook, wish))
    if started.get("policy") and policy != started["policy"]:
        found.append({"what": "the policy", "sha256": policy})
    hosts = wish.places.fingerprint()
    if hosts != str(started.get("inventory_sha256") or ""):
        found.append({"what": HOSTS, "sha256": hosts})
    return found


# --- stop and roll back --------------------------------------------------------------------------------------------


def stop_server(session: Session) -> tuple[ExitCode, StatusReport]:
    """End the server that the run started. Raises InputError when it started none."""
    launched = [
        call for call in session.run.journal.state.calls.values()
        if call.call.tool == "launch_sglang" and call.ok and call.result
    ]  # fmt: skip
    if not launched:
        raise InputError("this run started no server", where=str(session.folder), hint="opsagent show RUN")
    last = launched[-1]
    spec = CallSpec(tool="stop_server", host=last.call.role, args={"server": last.result})
    return _conclude(session, lambda: [steps.make(session.run, Fence(spec, 0))], "stopped by the operator")


def roll_back(session: Session) -> tuple[ExitCode, StatusReport]:
    """The recorded rollbacks of every step that was entered, newest first, each through the gate."""
    run = session.run

    def undo() -> list[Outcome]:
        entered = [step for step in run.runbook.steps if step.id in run.journal.state.steps]
        return [outcome for step in reversed(entered) for outcome in steps.roll_back(run, step)]

    return _conclude(session, undo, "rolled back by the operator")


def _conclude(session: Session, work: Callable[[], list[Outcome]], what: str) -> tuple[ExitCode, StatusReport]:
    """Do it, say how it went, and write the report anew: what it said of a running server is no longer so."""
    with interruptible(session):
        try:
            outcomes = work()
            codes = [_code(outcome) for outcome in outcomes]
            code = worst([c for c in codes if c is not ExitCode.VERIFIED])
            text = f"{what}: {sum(outcome.ok for outcome in outcomes)} of {len(outcomes)} calls done"
        except NeedApproval as wait:
            code, text = ExitCode.WAITING_APPROVAL, wait.what
        except StopRun as stop:
            code, text = stop.exit_code, stop.reason
        except OpsError as error:
            code, text = error.exit_code, error.what
    final = ExitCode.INTERRUPTED if code is ExitCode.VERIFIED else code
    return code, close_run(session, final, Claim(text=text), ended=True)


def _code(outcome: Outcome) -> ExitCode:
    if outcome.ok:
        return ExitCode.VERIFIED
    return ExitCode.DENIED if outcome.refused else ExitCode.FAILED
