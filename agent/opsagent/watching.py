"""Bystanders: servers of others on the hosts that a run writes to. They are looked at after each write, and at the end.

One that is gone, and that no call named, ends the run at once: nothing more is written, no rollback either. What comes
next is for a person to decide; the report says which server, and after which call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from opsagent.call import Call
from opsagent.protocols import Event
from opsagent.signals import StopRun
from opsagent_tools import bystanders
from opsagent_tools.errors import ExitCode, OpsError

if TYPE_CHECKING:
    from opsagent.run import Run


class Watch(Protocol):
    """Looks after bystanders. A replay has one that repeats what was recorded."""

    def begin(self, run: Run, role: str) -> None:
        """Before the first write on a host: who is there."""
        ...

    def after(self, run: Run, call: Call) -> None:
        """After a write. Raises StopRun when somebody is gone whom the call did not name."""
        ...

    def at_the_end(self, run: Run) -> Event | None:
        """The event that says who is gone; None when all are well."""
        ...


class HostWatch:
    """Asks the hosts."""

    def begin(self, run: Run, role: str) -> None:
        host = run.role_names.get(role, "")
        if not host or host in run.journal.state.bystanders:
            return
        try:
            seen = bystanders.look(run.open_host(role), run.id)
        except OpsError as error:
            run.emit("bystanders", host=host, seen=[], error=error.what)
        else:
            run.emit("bystanders", host=host, seen=seen)

    def after(self, run: Run, call: Call) -> None:
        event = self._look(run, call.role, call)
        if event is not None:
            raise ended(event)

    def at_the_end(self, run: Run) -> Event | None:
        for role in run.role_names:
            event = self._look(run, role, None)
            if event is not None:
                return event
        return None

    def _look(self, run: Run, role: str, call: Call | None) -> Event | None:
        """Journal who is gone. Returns the event when nobody had named them."""
        host = run.role_names.get(role, "")
        before = run.journal.state.bystanders.get(host)
        if not before:
            return None
        try:
            gone = bystanders.lost(run.open_host(role), before, run.clock)
        except OpsError:
            return None  # a host that is away says nothing of its tenants; the next look will
        begun = [known for known in run.journal.state.calls.values() if "call.started" in known.events]
        here = [known.call for known in begun if known.call.host == host]  # all calls: a look may have been lost
        named = [each for each in gone if any(is_named(run, made, each) for made in here)]
        lost = [each for each in gone if each not in named]
        if named:
            run.emit("bystanders", host=host, call=call.id if call else "", ended=named)
        return run.emit("bystanders", host=host, call=call.id if call else "", lost=lost) if lost else None


def is_named(run: Run, call: Call, each: dict[str, Any]) -> bool:
    """Whether the call said that it would end this one: by pid, by unit, by the port of a server to stop; or all of them."""
    if call.tool == "reboot_host":
        return True
    if call.tool == "stop_server" and each.get("port") is not None and each["port"] in _ports(call.args):
        return True
    known = run.journal.state.calls.get(call.id)
    said = set(_words([call.args, (known.result or {}).get("pids") if known else None]))
    said |= {key.partition(":")[2] for key in (known.verdict.get("facts") or {} if known else {}) if key[:4] == "pid:"}
    unit = str(each.get("unit") or "")
    return bool(said & {str(each.get("pid")), unit or "-", unit.removesuffix(".service") or "-"})


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif isinstance(value, str):
        yield from re.split(r"[\s=,]+", value)
    elif value is not None:
        yield str(value)


def _ports(args: dict[str, Any]) -> list[Any]:
    server = args.get("server")
    return [args.get("port"), server.get("port") if isinstance(server, dict) else None]


def text_of(event: Event) -> str:
    """What happened, in a sentence."""
    who = "; ".join(f"{bystanders.words(each)}: {each.get('why', '')}" for each in event.data["lost"])
    after = f" after {event.data['call']}" if event.data.get("call") else " at the end of the run"
    return f"a server of somebody else on {event.data['host']} is not well{after}: {who}"


def ended(event: Event) -> StopRun:
    hint = "nothing more was written; look at the host, then `opsagent rollback RUN` or a new run"
    return StopRun(ExitCode.FAILED, text_of(event), hint, evidence=[event.id])
