"""The lock of a host: while one run writes there, no other does, whoever started it and from wherever.

It is a file on the host itself (probes/lock.py), with the holder's run, operator, machine and pid, and it expires by the
host's own clock. It keeps opsagent's runs apart; it stops nobody who does not ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from opsagent_tools import probes
from opsagent_tools.errors import HostError, ToolFailed
from opsagent_tools.host import Host

TTL_S = 1800.0
"""Seconds until a lock that nobody renews expires; a run renews it after a third of that."""
TIMEOUT_S = 30.0


class HostLocked(HostError):
    """Another run writes on this host: nothing was executed; try again later (exit 3)."""

    def __init__(self, what: str, *, where: str = "", hint: str = "", holder: dict[str, Any] | None = None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.holder = holder or {}


@dataclass(frozen=True, slots=True)
class Owner:
    """Who takes a lock."""

    run: str
    operator: str = ""
    machine: str = ""
    pid: int = 0
    boot: str = ""
    """Boot id of that machine: a pid means something only within one boot."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lock that was taken. `until`: ISO time, UTC, by the host's clock."""

    path: str
    until: str
    broke: dict[str, Any] | None = None
    """The expired holder whose lock was broken for it."""


def take(host: Host, owner: Owner, *, ttl_s: float = TTL_S, dead: dict[str, Any] | None = None) -> Held:
    """Take the lock, or renew it. `dead`: a holder whose process is gone.

    Raises HostLocked (somebody else's), ToolFailed (none can be made), HostError (the link).
    """
    wanted = {
        "op": "take", "run": owner.run, "operator": owner.operator, "machine": owner.machine, "pid": owner.pid,
        "boot": owner.boot, "ttl_s": ttl_s, "dead": dead,
    }  # fmt: skip
    got = probes.ask(host, "lock", wanted, timeout_s=TIMEOUT_S)
    if got.get("error"):
        raise ToolFailed(f"no lock can be made: {got['error']}", where=host.name)
    if not got["taken"]:
        who = words(got["holder"])
        why = "" if got.get("why") == "held" else f" ({got.get('why')})"
        raise HostLocked(
            f"{host.name} is being written to by {who}{why}", where=host.name,
            hint=f"wait for it, or go on with it (`opsagent resume {got['holder'].get('run')}`); the lock is {got['path']}",
            holder=got["holder"],
        )  # fmt: skip
    return Held(str(got["path"]), moment(got["until"]), got.get("broke"))


def release(host: Host, run: str) -> bool:
    """Give it back; False when this run did not hold it. Raises ToolFailed, HostError."""
    return bool(probes.ask(host, "lock", {"op": "release", "run": run}, timeout_s=TIMEOUT_S).get("released"))


def words(holder: dict[str, Any]) -> str:
    """`run 7f3a of ann@desk (pid 4121) until 2026-03-01 10:20:30 UTC`."""
    who = "@".join(str(holder[key]) for key in ("operator", "machine") if holder.get(key))
    return (
        f"run {holder.get('run')}" + (f" of {who}" if who else "") + f" (pid {holder.get('pid')})"
        f" until {moment(holder.get('until', 0))}"
    )  # fmt: skip


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
