"""One session of an MCP server is one run: its calls go validate → classify → approve → journal → run → journal.

The journal is held only while a call is made. In between another process may write it: that is how a person approves a
call (`opsagent approve RUN CALL`) while the server waits for its client.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from opsagent.again import reopened
from opsagent.approving import gate_for
from opsagent.call import Call, canonical
from opsagent.execute import Outcome, Prepared, Rejected, admit_and_perform, binding, execute, prepare
from opsagent.gate.approvals import read_file
from opsagent.gate.typed import READERS
from opsagent.journal import FileJournal
from opsagent.journal.lock import is_live
from opsagent.journal.state import CallState
from opsagent.mcp_server.book import STEP, is_session
from opsagent.mcp_server.books import RUN_RUNBOOK, RunbookStarter, RunRunbookArgs
from opsagent.mcp_server.gate import SessionGate
from opsagent.mcp_server.leftover import settle_all, settle_reads
from opsagent.mcp_server.own import READING
from opsagent.progress import Progress
from opsagent.protocols import ToolCall
from opsagent.redact import lost_secrets
from opsagent.report.model import Claim
from opsagent.run import Run, Silent, Watcher
from opsagent.session import Session, Wish, begin, close_run, redactor_of
from opsagent.settling import AUTOMATIC, approved_meanwhile, resumed
from opsagent.signals import NeedApproval, StopRun
from opsagent_tools.errors import ExitCode, InputError, OpsError, PolicyDenied
from opsagent_tools.registry import TOOLS
from opsagent_tools.tool import Context, Tool

OWN: dict[str, Tool[Any, Any]] = {**READING, RUN_RUNBOOK.name: RUN_RUNBOOK}
WAIT_AT_END_S = 1.5
"""How long the end of the session waits for a call that is under way: clients kill a server that lingers."""

WAIT_FOR_OTHERS_S = 3.0
"""How long a call waits for another process that writes the journal: `opsagent approve` takes a moment."""


class ApprovalNeeded(PolicyDenied):
    """The call waits for a person; nothing was executed."""

    def __init__(self, run: str, known: CallState) -> None:
        self.run, self.call_id, self.binding = run, known.call.id, str(known.verdict.get("binding") or "")
        self.tier = str(known.verdict.get("tier") or "")
        by_hash = f" Or they put this hash into the server's --approve-file: {self.binding}"
        super().__init__(
            f"{known.call.tool} on {known.call.host or 'this machine'} is {self.tier} and waits for a person "
            f"(run {run}, call {known.call.id}); nothing was executed",
            where=known.call.host,
            hint=f"a person runs in another terminal: opsagent approve {run} {known.call.id}; then make exactly this call "
            f"again.{by_hash if self.tier in ('R1', 'R2') else ''}",
        )


@dataclass
class McpSession:
    """Everything that one server session shares. Thread-safe: one call at a time."""

    wish: Wish
    resume: str = ""
    """Run id of an earlier session that goes on."""
    _stack: ExitStack = field(default_factory=ExitStack)
    _session: Session | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _stopped: Callable[[], bool] = lambda: False
    _over: bool = False
    _exact: dict[str, str] = field(default_factory=dict)
    """Call that was asked about → its arguments with their secrets, which no journal keeps."""

    @property
    def tools(self) -> dict[str, Tool[Any, Any]]:
        """What is offered: without hosts only the session's own reading tools."""
        return {**OWN, **TOOLS} if self.roles else dict(READING)

    @property
    def roles(self) -> list[str]:
        return [role for role, host in self.wish.places.roles.items() if host]

    @property
    def run_id(self) -> str:
        """'' until the first call."""
        return self._session.run.id if self._session else ""

    @property
    def folder(self) -> Path | None:
        return self._session.folder if self._session else None

    def clean(self, value: Any) -> Any:
        """A text or a JSON value without the secrets that this session knows."""
        redactor = self._session.journal.redactor if self._session else redactor_of(self.wish.runbook, {})
        return redactor.value(value)[0]

    def call(
        self, name: str, arguments: Mapping[str, Any], *, watcher: Watcher | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Outcome:  # fmt: skip
        """Make one call. Raises OpsError; ApprovalNeeded when a person has to approve it first."""
        with self._turn, self._held(watcher or Silent(), stopped) as run:
            try:
                if name not in READERS and name not in READING:  # whatever is open, an assistant may look at the host
                    settle_all(run)
                return _make(run, ToolCall("mcp", name, dict(arguments)), self._exact)
            except NeedApproval as wait:
                raise ApprovalNeeded(run.id, run.journal.state.calls[wait.call_id]) from wait
            except StopRun as stop:
                raise _as_error(stop, run) from stop

    def open(self) -> None:
        """Begin, or go on with the earlier session. What it left open is settled before the first call that needs it."""
        with self._turn, self._held(Silent(), lambda: False) as run:
            settle_reads(run)

    # --- the journal, held for one call --------------------------------------------------------------------------

    @contextlib.contextmanager
    def _held(self, watcher: Watcher, stopped: Callable[[], bool]) -> Iterator[Run]:
        if self._over:
            raise InputError("the session is over", where=self.run_id)
        self._stopped = stopped
        if self._session is None:
            self._session = self._begin()
        else:
            self._take(self._session)
        run = self._session.run
        inner, run.watcher = run.watcher, _Both(run.watcher, watcher)
        try:
            _not_ended(run)
            yield run
        finally:
            with contextlib.suppress(OpsError):
                if run.locks is not None and not run.journal.state.unsettled:
                    run.locks.release(run)  # an assistant may be idle for hours: others can write meanwhile
            run.watcher = inner
            self._session.journal.close()

    def _begin(self) -> Session:
        if self.resume:
            session = self._stack.enter_context(
                reopened(
                    self.resume, mode="mcp", watcher=lambda _wish: Silent(), llm="autopilot", approve=self.wish.approve
                )
            )
            if not is_session(session.journal.state.started):
                raise InputError(f"{self.resume} is no assistant's session", hint=f"opsagent resume {self.resume}")
            self.wish = replace(self.wish, runbook=session.run.runbook, places=session.places)
        else:
            session = self._stack.enter_context(begin(self.wish))
        run, redactor = session.run, session.journal.redactor
        run.gate = SessionGate(
            gate_for(self.wish, run.id, lambda: run.journal.state, safe=lambda value: redactor.value(value)[0])
        )
        run.gate.taint()  # an assistant reads: what it writes after that may be somebody else's idea
        run.tools, run.control, run.budget = self.tools, OWN, None
        run.execute_tool = self._execute
        asked = run.stopped
        run.stopped = lambda: self._stopped() or asked()
        if not run.progress.step:
            run.emit("step.entered", step=STEP, title=run.runbook.title)
        return session

    def _take(self, session: Session) -> None:
        """Take the journal again, with what other processes wrote meanwhile."""
        run, until = session.run, time.monotonic() + WAIT_FOR_OTHERS_S
        while is_live(session.folder) and time.monotonic() < until:
            time.sleep(0.05)
        session.journal = FileJournal.resume(session.folder, session.journal.redactor)
        run.journal, run.progress = session.journal, Progress.of(session.journal.events())
        gate = run.gate
        if isinstance(gate, SessionGate) and self.wish.approve_file:
            gate.gate.pre_approved = read_file(Path(self.wish.approve_file))

    def _execute(self, call: Call, real: Callable[[], BaseModel]) -> dict[str, Any]:
        """The session's own tools act here; every other tool on its host."""
        assert self._session is not None
        run = self._session.run
        if call.tool not in OWN:
            return real().model_dump(mode="json", by_alias=True)
        context = Context(run_id=run.id, call_id=call.id, clock=run.clock, stopped=run.stopped)
        if call.tool == RUN_RUNBOOK.name:
            facts = run.journal.state.calls[call.id].verdict.get("facts") or {}
            starter = RunbookStarter(self.wish.places, sha256=str(facts.get("runbook") or ""))
            found: BaseModel = starter.start(RunRunbookArgs.model_validate(call.args), context, _Both(run.watcher))
        else:
            tool = OWN[call.tool]
            found = tool.run(None, tool.args.model_validate(call.args), context)
        return found.model_dump(mode="json", by_alias=True)

    def close(self) -> None:
        """End the run and write its report. Waits only shortly for a call that is under way: it stays open then."""
        if not self._turn.acquire(timeout=WAIT_AT_END_S):
            return
        try:
            session, self._over = self._session, True
            if session is not None:
                self._take(session)
                settle_reads(session.run)
                _finish(session)
        finally:
            self._turn.release()
            self._stack.close()


@dataclass(frozen=True)
class _Both:
    """Progress goes to the client of this call, events to whoever watches the run."""

    events: Watcher
    progress: Watcher = field(default_factory=Silent)

    def on_event(self, event: Any) -> None:
        self.events.on_event(event)

    def on_progress(self, call: Call, progress: Any) -> None:
        self.progress.on_progress(call, progress)


def _as_error(stop: StopRun, run: Run) -> OpsError:
    error = OpsError(stop.reason, where=run.id, hint=stop.hint)
    error.exit_code = stop.exit_code
    return error


def _not_ended(run: Run) -> None:
    for known in run.journal.state.calls.values():
        if known.decision.get("answer") == "stop":
            reason = known.decision.get("reason") or "no reason given"
            raise PolicyDenied(f"the operator ended this session: {reason}", where=run.id, hint="ask the operator")


def _make(run: Run, wanted: ToolCall, exact: dict[str, str]) -> Outcome:
    try:
        ready = prepare(run, wanted)
    except Rejected as error:
        run.emit("model.rejected", what=error.what, hint=error.hint, tool=wanted.name)
        raise
    known = _earlier(run, ready, exact)
    if known is not None:
        return _again(run, ready, known)
    exact[ready.call.id] = canonical(ready.call.args)
    return execute(run, ready)


def _earlier(run: Run, ready: Prepared, exact: Mapping[str, str]) -> CallState | None:
    """The newest call that says exactly the same, if it is not over: it is answered instead of being asked anew.

    Where secrets were taken out, the journal cannot tell one call from another: then it is the one of this process, or
    none.
    """
    args, _hits = run.journal.redactor.value(ready.call.args)
    blind = bool(lost_secrets(args))
    for known in reversed(list(run.journal.state.calls.values())):
        if (known.call.tool, known.call.host, known.call.args) == (ready.call.tool, ready.call.host, args):
            if blind and exact.get(known.call.id) != canonical(ready.call.args):
                continue
            by_person = known.decision.get("by") not in (None, *AUTOMATIC)
            live = known.status in ("waiting", "approved", "changed") or (
                known.status in ("refused", "undone") and by_person  # undone: it was approved, and did not happen
            )
            return known if live else None
    return None


def _again(run: Run, ready: Prepared, known: CallState) -> Outcome:
    """The same call once more: refused as before, still waiting, or approved meanwhile and made now, once."""
    call = ready.call.model_copy(
        update={"id": known.call.id}
    )  # its arguments still have the secrets that the journal lacks
    same = Prepared(call, ready.tool, ready.args, ready.fence, known.bind)
    if known.status == "refused":
        reason = known.decision.get("reason") or "no reason given"
        raise PolicyDenied(
            f"{call.tool} was refused by {known.decision.get('by')}: {reason}", where=call.host,
            hint="do not reach the same effect another way; ask the operator",
        )  # fmt: skip
    if known.status == "changed":
        outcome = resumed(run, known)
        assert outcome is not None
        return outcome
    if known.status in ("approved", "undone"):
        return approved_meanwhile(run, same, known)
    verdict = run.gate.judge(call)
    gate = run.gate
    if isinstance(gate, SessionGate) and binding(run, call, verdict) in gate.gate.pre_approved:
        return admit_and_perform(run, same, verdict)
    raise NeedApproval(call.id, "it still waits")


def _finish(session: Session) -> None:
    """`run.finished` and the report. A session proves nothing, so it never ends as verified."""
    state = session.run.journal.state
    made = [call for call in state.calls.values() if call.done]
    code = ExitCode.INTERRUPTED
    if state.unsettled:
        code = ExitCode.UNKNOWN_OUTCOME
    elif state.waiting:
        code = ExitCode.WAITING_APPROVAL
    text = f"the assistant's session ended after {len(made)} calls"
    hint = f"; goes on with: opsagent mcp --resume {session.run.id}" if code is not ExitCode.INTERRUPTED else ""
    with contextlib.suppress(OpsError):
        close_run(session, code, Claim(text=text + hint))
