"""A run from the outside: what the operator asked for becomes a folder with a journal, hosts, a gate and a model.

`begin` starts a new run (again.py opens an old one), `conduct` follows it to its end and writes the report.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsagent import steps
from opsagent.approving import fingerprint, gate_for, policy_of
from opsagent.autopilot import Autopilot
from opsagent.budget import Budget, Limits
from opsagent.call import canonical
from opsagent.control import CONTROL
from opsagent.conversation import SYSTEM
from opsagent.journal import FileJournal
from opsagent.learning import learn
from opsagent.learning import load as load_history
from opsagent.locking import Locks
from opsagent.loop import drive
from opsagent.observing import Observed, check, observed
from opsagent.protocols import Model
from opsagent.redact import Redactor
from opsagent.report.build import build
from opsagent.report.model import Claim, StatusReport
from opsagent.report.trouble import DRY_RUN
from opsagent.report.write import write_report
from opsagent.run import Follower, Run, Silent, Watcher
from opsagent.runbook.model import Runbook
from opsagent.runbook.params import bind
from opsagent.signals import NeedApproval, StopRun
from opsagent.watching import HostWatch, text_of
from opsagent_tools.clock import FastClock
from opsagent_tools.errors import BudgetExceeded, ExitCode, OpsError

if TYPE_CHECKING:
    from opsagent.places import Places


LAB_STATE = "lab.json"


@dataclass(frozen=True)
class Wish:
    """What the operator asked for, once the command line is read."""

    runbook: Runbook
    places: Places
    """Where the roles are: real hosts or a lab."""
    params: Mapping[str, Any] = field(default_factory=dict)
    llm: str = ""
    """'' or `autopilot`: the built-in; `replay:RUN`; else the name of a model at OPENAI_BASE_URL."""
    chooser: str = ""
    """Who chooses the calls, when it is no model of ours (an assistant, over MCP)."""
    approve: str = ""
    """`ask`, `declared`, `never`; '' for the default of the place and the terminal."""
    approve_file: str = ""
    dry: bool = False
    folder: Path | None = None
    interactive: bool = False
    notice: Callable[[str], None] = lambda _text: None
    """Prints one line for the operator (stderr)."""


@dataclass
class Session:
    """A run that is open: close it, or use it in a `with`."""

    run: Run
    model: Model
    folder: Path
    journal: FileJournal
    places: Places
    interrupted: bool = False
    observed: Observed | None = None
    """Notifications and telemetry: they are given time at the end, and what they lost is a note."""

    def close(self) -> None:
        for lost in self.observed.close() if self.observed else ():
            with contextlib.suppress(OpsError):
                self.run.emit("note", kind="observer", what=lost)
        with contextlib.suppress(OpsError):
            self.places.close()
        self.journal.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def begin(wish: Wish, *, watcher: Watcher | None = None) -> Session:
    """Start a run: bind parameters, make the folder, write `run.started`. Raises InputError before anything exists."""
    from opsagent.journal.runs import new_run

    params = bind(wish.runbook, wish.params, wish.places.params)
    policy_of(wish.runbook, wish)
    check()
    run_id, folder = new_run(wish.folder)
    if wish.places.lab is not None:
        wish.places.lab.state = folder / LAB_STATE  # so that a later process finds the same simulated hosts
    redactor = redactor_of(wish.runbook, params)
    journal = FileJournal.create(folder, redactor)
    tools = all_tools()
    started = {
        "run": run_id,
        "runbook": {
            "name": wish.runbook.name, "title": wish.runbook.title, "path": wish.runbook.path,
            "sha256": journal.blob(wish.runbook.text.encode(), name="runbook.md"),
        },
        "tools": journal.blob(canonical(schemas(tools)).encode(), name="tools.json"),
        "policy": journal.blob(canonical(asdict(policy_of(wish.runbook, wish))).encode(), name="policy.json"),
        "system": journal.blob(SYSTEM.encode(), name="system.txt") if reads(wish) else "",
        "params": params,
        "model": wish.chooser or wish.llm or "autopilot",
        "hosts": dict(wish.places.roles),
        "inventory": wish.places.inventory_path,
        "inventory_sha256": wish.places.fingerprint(),
        "lab": wish.places.lab_name,
        "simulated": wish.places.simulated,
        "approve": wish.approve,
        "approve_file": str(Path(wish.approve_file).absolute()) if wish.approve_file else "",
        "dry": wish.dry,
    }  # fmt: skip
    try:
        session = assemble(wish, run_id, folder, journal, tools, watcher)
        session.run.emit("run.started", **started)
    except BaseException:
        journal.close()
        raise
    return session


def reads(wish: Wish) -> bool:
    """Whether the model is one that reads: then the prompt that it gets is part of the run."""
    return (wish.chooser or wish.llm or "autopilot") != "autopilot"


def assemble(
    wish: Wish, run_id: str, folder: Path, journal: FileJournal, tools: dict[str, Any], watcher: Watcher | None
) -> Session:
    """Put the parts of a run together around an open journal."""
    from opsagent_tools.snapshot import snapshot

    places = wish.places
    clock = FastClock(places.speed)
    run = Run(
        id=run_id, runbook=wish.runbook, journal=journal, tools=tools,
        gate=gate_for(wish, run_id, lambda: journal.state, safe=lambda value: journal.redactor.value(value)[0]),
        policy=fingerprint(policy_of(wish.runbook, wish)), known_secrets=known_secrets(wish.runbook, wish.params),
        role_names=dict(places.roles), open_host=places.open, clock=clock, watcher=watcher or Silent(),
        simulated=places.simulated, dry=wish.dry, secrets=journal.redactor.add, take_picture=snapshot,
    )  # fmt: skip
    if not places.simulated:
        run.history = {name: load_history(name) for name in places.roles.values() if name}
    run.budget = Budget(Limits.of(wish.runbook.front.budget), clock, usage=lambda: journal.state.usage)
    session = Session(run, model_of(wish, run), folder, journal, places)
    run.stopped = lambda: session.interrupted or (folder / "STOP").exists()
    run.locks, run.watch = Locks(), HostWatch()
    if isinstance(watcher, Follower):
        watcher.attach(run)
    run.watcher = session.observed = observed(run, wish)
    return session


def model_of(wish: Wish, run: Run) -> Model:
    """The autopilot, or the LLM that the operator named; where it goes is said before the first request."""
    from opsagent.models.select import choose, connect

    choice = choose(wish.llm or "autopilot", os.environ)
    if choice.kind == "autopilot":
        return Autopilot(run)
    if choice.kind == "replay":
        from opsagent.models.replay import recorded_model

        return recorded_model(choice.name)
    wish.notice(choice.notice)
    budget = run.budget
    return connect(choice, emit=run.emit, left_s=budget.left_s if isinstance(budget, Budget) else lambda: float("inf"))


def all_tools() -> dict[str, Any]:
    from opsagent_tools.registry import TOOLS

    return {**TOOLS, **CONTROL}


def schemas(tools: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tool.args.model_json_schema() for name, tool in tools.items()}


def redactor_of(runbook: Runbook, params: Mapping[str, Any]) -> Redactor:
    return Redactor(known_secrets(runbook, params))


def known_secrets(runbook: Runbook, params: Mapping[str, Any]) -> dict[str, str]:
    """The run's secret parameters and the secrets of our own environment, by name."""
    known = {name: str(params[name]) for name, p in runbook.front.params.items() if p.secret and params.get(name)}
    for name, value in os.environ.items():
        if value and any(word in name.upper() for word in ("TOKEN", "API_KEY", "PASSWORD", "SECRET")):
            known[name] = value
    return known


# --- to the end ----------------------------------------------------------------------------------------------------


def conduct(session: Session) -> StatusReport:
    """Follow the run to its end, whatever end that is; the report is written in every case."""
    with interruptible(session):
        code, failed = _drive(session)
    return close_run(session, code, failed)


def _drive(session: Session) -> tuple[ExitCode, Claim | None]:
    run = session.run
    try:
        code = drive(run, session.model)
        return code, None if code is ExitCode.VERIFIED else _why(run)
    except NeedApproval as wait:
        return ExitCode.WAITING_APPROVAL, Claim(text=wait.what, evidence=_waiting_event(run, wait.call_id))
    except StopRun as stop:
        text = stop.reason + (f" ({stop.hint})" if stop.hint else "")
        return stop.exit_code, Claim(text=text, evidence=stop.evidence)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED, Claim(text="interrupted")
    except BudgetExceeded as error:
        event = run.emit("budget.exceeded", what=error.what, hint=error.hint)
        return error.exit_code, Claim(text=error.what, evidence=[event.id])
    except OpsError as error:
        event = run.emit("error", what=error.what, where=error.where, hint=error.hint)
        return error.exit_code, Claim(text=error.what + (f" ({error.hint})" if error.hint else ""), evidence=[event.id])


def _why(run: Run) -> Claim | None:
    failure = run.progress.failure
    if failure is None:
        return None
    if stopped := left_out(run):
        return stopped
    shown = next((each for each in run.journal.events() if each.id == failure.event), None)
    wanted = shown.data.get("why") if shown is not None and shown.type == "step.check" else ""
    tail = (f" (wanted: {wanted})" if wanted else "") + (f" [{failure.cause}]" if failure.cause else "")
    return Claim(
        text=f"Step {run.progress.step}: {failure.what}{tail}", evidence=[failure.event] if failure.event else []
    )


def left_out(run: Run) -> Claim | None:
    """Where a dry run ends because of what it did not do, which is no fault: None when it ends for another reason."""
    calls = [
        known
        for known in run.journal.state.calls.values()
        if known.call.step == run.progress.step and known.events.get("approval.decided") in run.progress.refused
    ]
    if not run.dry or not calls or run.progress.unmet:
        return None
    would = ", ".join(f"{known.call.tool} on {known.call.host} ({known.verdict.get('tier')})" for known in calls)
    return Claim(
        text=f"{DRY_RUN} ends at step {run.progress.step}: it would now call {would}; the step's checks are for after that",
        evidence=[known.events["approval.decided"] for known in calls],
    )


def _waiting_event(run: Run, call_id: str) -> list[str]:
    known = run.journal.state.calls.get(call_id)
    return [known.events["approval.requested"]] if known and "approval.requested" in known.events else []


def close_run(session: Session, code: ExitCode, failed: Claim | None, *, ended: bool = False) -> StatusReport:
    """Write `run.finished` and the report beside the journal. `ended`: by the operator, and nothing will follow."""
    run = session.run
    if ended or code not in (ExitCode.WAITING_APPROVAL, ExitCode.INTERRUPTED):  # those go on: it is not the end yet
        changed = {key.rsplit("/", 1)[0] for key in run.journal.state.snapshots if key.endswith("/before")}
        for role, host in run.role_names.items():
            if host in changed:
                run.picture(role, "after", again=True)
    code, failed = _bystanders(run, code, failed)
    if run.locks is not None and code is not ExitCode.UNKNOWN_OUTCOME:  # then a person has to look before others write
        run.locks.release(run)
    if not run.simulated and code is ExitCode.VERIFIED:
        learn(run.journal.state)
    if run.runbook.front.open:
        run.emit("note", open=steps.open_items(run))
    if failed is not None:
        failed = failed.model_copy(update={"text": run.journal.redactor.clean(failed.text)})
    events = list(run.journal.events())
    report = build(run.journal.state, events, exit_code=int(code), failed=failed)
    run.emit("run.finished", status=report.status, exit_code=int(code), failed=failed.model_dump() if failed else None)
    write_report(session.folder, report, events)
    return report


def _bystanders(run: Run, code: ExitCode, failed: Claim | None) -> tuple[ExitCode, Claim | None]:
    """The last look at the servers of others: a run that left one of them dead is not verified."""
    event = run.watch.at_the_end(run) if run.watch is not None else None
    if event is None:
        return code, failed
    claim = failed or Claim(text=text_of(event), evidence=[event.id])
    return (ExitCode.FAILED if code is ExitCode.VERIFIED else code), claim


@contextlib.contextmanager
def interruptible(session: Session) -> Iterator[None]:
    """The first SIGINT or SIGTERM ends the run at the next event boundary; the second at once."""

    def ask_to_stop(_number: int, _frame: object) -> None:
        if session.interrupted:
            raise KeyboardInterrupt
        session.interrupted = True

    old: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # not in the main thread: nobody can interrupt us there
                old[number] = signal.signal(number, ask_to_stop)
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
