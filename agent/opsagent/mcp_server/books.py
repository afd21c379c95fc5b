"""The tool `run_runbook`: a whole run of a runbook, asked for by an assistant, with a journal of its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from opsagent.places import Places, real_places
from opsagent.run import Watcher
from opsagent.runbook.model import Runbook
from opsagent_tools.errors import InputError, PolicyDenied
from opsagent_tools.tool import Args, Context, Result, Tool


class RunRunbookArgs(Args):
    runbook: str = Field(description="A shipped runbook (migrate, launch, diagnose, upgrade, decommission) or a path.")
    hosts: dict[str, str] = Field(default={}, description="Role of the runbook → host of this session.")
    params: dict[str, str] = Field(default={}, description="Parameters of the runbook.")
    dry_run: bool = Field(default=False, description="Make the reads only and say what would be done.")


class RunRunbookResult(Result):
    run: str
    status: str
    exit_code: int
    waiting: list[str] = []
    """Calls of that run that wait for a person: `opsagent approve RUN CALL`, then `opsagent resume RUN`."""
    report: str
    """The report as Markdown."""

    @property
    def failed(self) -> bool:
        return self.exit_code not in (0, 4)


@dataclass(frozen=True)
class RunbookStarter:
    """What a run of a runbook takes over from the session: its hosts."""

    places: Places
    sha256: str = ""
    """Of the text that was judged and approved: the file is not ours, and may change until it is read."""

    def start(self, args: RunRunbookArgs, ctx: Context, watcher: Watcher) -> RunRunbookResult:
        """Run it to its end, whatever that is. Calls that need a person wait: it ends with exit 4 then.

        Raises InputError for a runbook, role, host or parameter that is not there.
        """
        from opsagent.checked import checked_runbook
        from opsagent.data import find_runbook
        from opsagent.report.markdown import render
        from opsagent.session import Wish, begin, conduct

        book = checked_runbook(find_runbook(args.runbook))
        if self.sha256 and hashlib.sha256(book.text.encode()).hexdigest() != self.sha256:
            raise PolicyDenied(
                "the runbook changed after it was judged; nothing was executed", where=book.path, hint="ask again"
            )
        wish = Wish(runbook=book, places=self._places(book, args.hosts), params=args.params, approve="declared",
                    dry=args.dry_run)  # fmt: skip
        with begin(wish, watcher=watcher) as session:
            asked = session.run.stopped
            session.run.stopped = lambda: asked() or ctx.stopped()
            report = conduct(session)
            waiting = [call.call.id for call in session.journal.state.waiting]
        return RunRunbookResult(
            run=report.run, status=report.status, exit_code=report.exit_code, waiting=waiting, report=render(report),
            summary=f"{book.name}: {report.status} (run {report.run})",
        )  # fmt: skip

    def _places(self, book: Runbook, hosts: dict[str, str]) -> Places:
        """The runbook's roles on hosts of this session and no others."""
        known = self.places.roles
        names = {role: known.get(name, name) for role, name in hosts.items()}
        foreign = [name for name in names.values() if name not in known.values()]
        if foreign:
            raise InputError(
                f"{foreign[0]!r} is no host of this session", where="run_runbook", hint=f"hosts: {', '.join(known)}"
            )
        if self.places.simulated:
            return _simulated(book, self.places, names)
        return real_places(book, [f"{r}={n}" for r, n in names.items()], self.places.inventory_path, Path.cwd())


def _simulated(book: Runbook, lab: Places, names: dict[str, str]) -> Places:
    """The lab of the session serves the run too; it is closed with the session, not with the run."""
    roles = {role: names.get(role) or lab.roles.get(role, "") for role in book.front.hosts}
    empty = [role for role, spec in book.front.hosts.items() if spec.count and not roles[role]]
    if empty:
        raise InputError(f"the role {empty[0]!r} has no host", where=book.path, hint="hosts: {role: host}")
    params = {name: value for name, value in lab.lab.params.items() if name in book.front.params}
    return Places(
        roles, lab.inventory, params=params, simulated=True, lab_name=lab.lab_name, speed=lab.speed, approver=None
    )


def by_session(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("the session starts runs of runbooks")


RUN_RUNBOOK = Tool(
    "run_runbook",
    "Follow a whole runbook on hosts of this session, step by step, to a report. It needs a person's approval (with "
    "dry_run: none, it only reads); inside, what the runbook declares runs, and what disrupts waits for a person again.",
    RunRunbookArgs, RunRunbookResult, by_session, tier="R2", recovery="non_retriable",
)  # fmt: skip
