"""One execution of a runbook: everything that the loop needs in one place, and the only way to write an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from opsagent.autopilot import Failure
from opsagent.call import Call, Decision, Verdict
from opsagent.control import CONTROL
from opsagent.locking import Locks
from opsagent.progress import Progress
from opsagent.protocols import Event, Journal
from opsagent.redact import unmarked
from opsagent.runbook import expr
from opsagent.runbook.model import Call as Fence
from opsagent.runbook.model import Remedy, Runbook, Step
from opsagent.watching import Watch
from opsagent_tools.clock import Clock, FastClock
from opsagent_tools.errors import InputError, OpsError
from opsagent_tools.host import Host
from opsagent_tools.tool import Progress as ToolProgress
from opsagent_tools.tool import Tool


class GateLike(Protocol):
    """What the loop asks of the gate (opsagent.gate.Gate)."""

    def judge(self, call: Call) -> Verdict: ...

    def admit(
        self, call: Call, verdict: Verdict, *, rollback: str = "", diff: str = "",
        asking: Callable[[], None] | None = None,
    ) -> Decision: ...  # fmt: skip

    def recheck(self, call: Call, verdict: Verdict) -> None: ...

    def expired(self, decision: Mapping[str, Any]) -> bool:
        """Whether an approval's time is over; in a replay, whether it was."""
        ...

    def taint(self) -> None:
        """A text that somebody else may have written reached the model."""
        ...


class Watcher(Protocol):
    """Something that follows a run while it happens: the live view, plain lines, a test."""

    def on_event(self, event: Event) -> None: ...

    def on_progress(self, call: Call, progress: ToolProgress) -> None: ...


@runtime_checkable
class Follower(Watcher, Protocol):
    """A watcher that also looks at the run between events: its clock, its budgets, whether it was asked to stop."""

    def attach(self, run: Run) -> None: ...


class Silent:
    """Watches nothing."""

    def on_event(self, event: Event) -> None:
        return

    def on_progress(self, call: Call, progress: ToolProgress) -> None:
        return


class BudgetLike(Protocol):
    """What the loop asks of the budget: raises BudgetExceeded when one is used up."""

    def turn(self, usage: Mapping[str, int]) -> None: ...

    def call(self) -> None: ...


@dataclass
class Run:
    """A run in memory. `progress` and `journal.state` are folds of the journal and nothing else."""

    id: str
    runbook: Runbook
    journal: Journal
    gate: GateLike
    tools: Mapping[str, Tool[Any, Any]]
    role_names: dict[str, str]
    """Role → configured host name, '' for an optional role that is not filled."""
    open_host: Callable[[str], Host]
    """The host of a role, connected on first use."""
    progress: Progress = field(default_factory=Progress)
    clock: Clock = field(default_factory=FastClock)
    watcher: Watcher = field(default_factory=Silent)
    budget: BudgetLike | None = None
    simulated: bool = False
    dry: bool = False
    rolling_back: bool = False
    system: str = ""
    """The system prompt, where it is not today's: a replay has the recorded one."""
    policy: str = ""
    """sha256 of the policy in force: what a person grants beyond one call holds under this policy only."""
    known_secrets: Mapping[str, str] = field(default_factory=dict)
    """Secret parameters and variables by name: what the journal has only as a mark."""
    stopped: Callable[[], bool] = lambda: False
    secrets: Callable[[str], None] = lambda _value: None
    history: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Measured facts of earlier runs by host name."""
    take_picture: Callable[[Host, Sequence[str]], dict[str, Any]] | None = None
    """Facts of a host for before and after (opsagent_tools.snapshot); None: no pictures are taken."""
    locks: Locks | None = None
    """One writer per host (opsagent.locking); None: no locks are taken (a replay, a test)."""
    watch: Watch | None = None
    """Looks after servers of others (opsagent.watching); None: nobody does."""
    execute_tool: Callable[[Call, Callable[[], BaseModel]], dict[str, Any]] | None = None
    """In a replay: recorded results instead of hosts (the second argument would run the real tool)."""

    control = CONTROL

    def emit(self, type: str, /, **data: Any) -> Event:
        """Write an event, take it into account, show it: in this order."""
        event = self.journal.append(type, **data)
        self.progress.apply(event)
        self.watcher.on_event(event)
        return event

    def picture(self, role: str, phase: str, *, again: bool = False) -> None:
        """A snapshot of a host for the comparison in the report, once a phase unless `again`.

        One that fails is said and does not stop us.

        In a replay there is no host: the recorded snapshots stand in the journal already.
        """
        host = self.role_names.get(role, "")
        if not host or self.take_picture is None:
            return
        if f"{host}/{phase}" in self.journal.state.snapshots and not again:
            return
        try:
            facts = self.take_picture(self.open_host(role), self.runbook.front.allow.roots)
        except OpsError as error:
            self.emit("snapshot", host=host, phase=phase, facts={}, error=error.what)
        else:
            self.emit("snapshot", host=host, phase=phase, facts=facts)

    def lock(self, role: str) -> None:
        """Keep other runs from writing on a role's host. Raises HostLocked (exit 3), HostError."""
        if self.locks is not None:
            self.locks.hold(self, role)

    # --- what expressions see ------------------------------------------------------------------------------------

    def bindings(self) -> dict[str, Any]:
        return {
            **self.restored(self.journal.state.params),
            **self.journal.state.bindings,
            "hosts": self.role_names,
            "run": {"id": self.id, "simulated": self.simulated, "dry": self.dry},
        }

    def restored(self, value: Any) -> Any:
        """A value of the journal with the secrets that are known again in place of their marks."""
        return unmarked(value, self.known_secrets) if self.known_secrets else value

    def only_role(self) -> str:
        """The role to take when a call names none: the only one there is, else ''."""
        return next(iter(self.role_names)) if len(self.role_names) == 1 else ""

    def offered(self) -> list[str]:
        """The tools that a model is shown: those that the runbook allows, and the ones that act on the run."""
        allowed = self.runbook.front.allow.tools or tuple(self.tools)
        return [name for name in self.tools if name in allowed or name in self.control]

    def next_call_id(self) -> str:
        return f"c{len(self.journal.state.calls) + 1}"

    # --- the step at hand ----------------------------------------------------------------------------------------

    @property
    def step(self) -> Step:
        return self.runbook.steps[self.runbook.index(self.progress.step)]

    @property
    def finishing(self) -> bool:
        return len(self.progress.left) == len(self.runbook.steps)

    @property
    def pending(self) -> Fence | None:
        """The step's next call fence; fences whose `when` is false or whose role is empty are skipped by an event."""
        if not self.progress.step:
            return None
        for index, fence in enumerate(self.step.calls):
            if index in self.progress.fences:
                continue
            reason = self._skip_reason(fence)
            if not reason:
                return fence
            self.emit("note", step=self.progress.step, skipped=index, bind=fence.spec.bind, value=None, why=reason)
        return None

    def _skip_reason(self, fence: Fence) -> str:
        if fence.spec.host and not self.role_names.get(fence.spec.host):
            return f"no host in the role {fence.spec.host}"
        if fence.spec.when and expr.evaluate(fence.spec.when, self.bindings()) is not True:
            return f"not ({fence.spec.when})"
        return ""

    @property
    def failure(self) -> Failure | None:
        return self.progress.failure

    def fence_index(self, tool: str, role: str, bind: str) -> int | None:
        """The open fence of this step that a call with this tool, role and name fulfils."""
        for index, fence in enumerate(self.step.calls if self.progress.step else ()):
            spec = fence.spec
            same_role = (spec.host or self.only_role()) == (role or self.only_role())
            wanted = (bind == spec.bind) if bind else index not in self.progress.fences
            if spec.tool == tool and same_role and wanted:
                return index
        return None

    def declares(self, tool: str, role: str, args: BaseModel) -> bool:
        """Whether a fence of this step says exactly this call, with its references filled in."""
        for fence in self.step.calls if self.progress.step else ():
            if fence.spec.tool == tool and (fence.spec.host or self.only_role()) == role and self.same(fence, args):
                return True
        return False

    def same(self, fence: Fence, args: BaseModel) -> bool:
        try:
            filled = expr.resolve(fence.spec.args, self.bindings())
            return bool(self.tools[fence.spec.tool].args.model_validate(filled) == args)
        except (InputError, ValueError):
            return False

    # --- remedies ------------------------------------------------------------------------------------------------

    def remedies(self, cause: str) -> list[str]:
        """Where an untried remedy for the cause would come from, the runbook's own first."""
        if not self.progress.untried(self.progress.step, cause):
            return []
        found = ["step"] if self.step.remedy(cause) else []
        found += ["runbook"] if self.common_remedy(cause) else []
        return found + (["diagnosis"] if self.diagnosed_fix(cause) else [])

    def common_remedy(self, cause: str) -> Remedy | None:
        return next((remedy for remedy in self.runbook.remedies if remedy.cause == cause), None)

    def diagnosed_fix(self, cause: str) -> dict[str, Any]:
        """The executable fix (`flags`, `env`) that a result bound in this run carries for the cause."""
        for result in reversed([r for r in self.journal.state.bindings.values() if isinstance(r, dict)]):
            fix = result.get("fix") or (result.get("diagnosis") or {}).get("fix")
            if result.get("cause") == cause and isinstance(fix, dict) and (fix.get("flags") or fix.get("env")):
                return fix
        return {}
