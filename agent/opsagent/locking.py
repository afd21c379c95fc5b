"""One writer per host: the run takes a host's lock before its first effect there, renews it, and gives it back at the end.

The lock lies on the host and expires (opsagent_tools.host_lock). `resume` of the same run takes it again at once; another
run is refused until it is given back or has expired, and then the broken one is an event.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opsagent.journal.lock import boot_id
from opsagent_tools import host_lock
from opsagent_tools.errors import OpsError, ToolFailed

if TYPE_CHECKING:
    from opsagent.run import Run


def operator() -> str:
    """Who runs us; '' where the system does not say."""
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return ""


def is_dead(holder: Mapping[str, Any]) -> bool:
    """Whether the holder was a process of this machine's present boot, and is gone. Any doubt: it lives."""
    if not holder.get("boot") or holder.get("boot") != boot_id() or holder.get("machine") != platform.node():
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return False


@dataclass
class Locks:
    """The locks that this process holds: role → when it was taken or renewed last, by the run's clock."""

    ttl_s: float = host_lock.TTL_S
    held: dict[str, float] = field(default_factory=dict)

    def hold(self, run: Run, role: str) -> None:
        """Take or renew the lock of a role's host, unless that was done a moment ago. Raises HostLocked, HostError.

        Where no lock can be made (no python3, nowhere to write) nobody else can make one either: that is said, and the
        call goes on.
        """
        host = run.role_names.get(role, "")
        last = self.held.get(role)
        if not host or (last is not None and run.clock.now() - last < self.ttl_s / 3):
            return
        try:
            held = self._take(run, role)
        except ToolFailed as error:
            if last is None:
                run.emit("host.locked", host=host, error=error.what)
        else:
            if last is None or held.broke:
                run.emit("host.locked", host=host, until=held.until, path=held.path, broke=held.broke)
        self.held[role] = run.clock.now()

    def _take(self, run: Run, role: str) -> host_lock.Held:
        owner = host_lock.Owner(run.id, operator(), platform.node(), os.getpid(), boot_id())
        try:
            return host_lock.take(run.open_host(role), owner, ttl_s=self.ttl_s)
        except host_lock.HostLocked as refused:
            if not is_dead(refused.holder):
                raise
            return host_lock.take(run.open_host(role), owner, ttl_s=self.ttl_s, dead=refused.holder)

    def renew(self, run: Run, role: str) -> None:
        """The same while a tool works: a link that is lost for a moment does not end the work."""
        if role in self.held:
            with contextlib.suppress(OpsError):
                self.hold(run, role)

    def release(self, run: Run) -> None:
        """Give all of them back. One that cannot be given back expires."""
        for role in list(self.held):
            del self.held[role]
            host = run.role_names.get(role, "")
            try:
                released = host_lock.release(run.open_host(role), run.id)
            except OpsError as error:
                run.emit("host.released", host=host, error=error.what)
            else:
                if released:
                    run.emit("host.released", host=host)
