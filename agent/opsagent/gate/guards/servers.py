"""Guard of servers, units, processes and ports: is it ours, is it named by the runbook, is it somebody else's?"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from opsagent.gate.trace import Trace

UNIT = re.compile(r"opsagent-([A-Za-z0-9]+)-[A-Za-z0-9_.]+(\.service)?")


def own_unit(t: Trace, name: str) -> bool:
    """Whether a unit carries this run's id (`opsagent-<run>-<call>`)."""
    found = UNIT.fullmatch(name)
    return bool(found and t.facts.run and found[1] == t.facts.run)


def is_ours(t: Trace, server: Any) -> bool:
    """Whether a server (result of a launch, unit name, or pid) was started by this run."""
    if isinstance(server, str):
        return own_unit(t, server)
    if not isinstance(server, dict):
        return False
    unit = server.get("unit") or (server.get("server") if isinstance(server.get("server"), str) else "")
    pid = server.get("pid")
    if unit:
        return own_unit(t, str(unit)) and not (isinstance(pid, int) and _elsewhere(t, pid))
    return isinstance(pid, int) and process_ours(t, pid)


SESSION = re.compile(r"|(session-.*|init)\.scope|sshd?(@.*)?\.service|user@.*\.service|pve-container@.*\.service|lxc.*")


def _elsewhere(t: Trace, pid: int) -> bool:
    """Whether a process is known to live in a service that is not ours (jobs without systemd live in a session)."""
    fact = t.fact(f"pid:{pid}", f"pid {pid} belongs to that unit")
    unit = str(fact.get("unit", "")) if isinstance(fact, dict) else ""
    return not own_unit(t, unit) and SESSION.fullmatch(unit) is None


def named(t: Trace, server: Any) -> bool:
    """Whether the runbook's `allow` names the unit."""
    unit = (
        server
        if isinstance(server, str)
        else server.get("unit") or server.get("server")
        if isinstance(server, dict)
        else ""
    )
    plain = str(unit).removesuffix(".service")
    return bool(plain) and any(plain == each.removesuffix(".service") for each in t.policy.units)


def process_ours(t: Trace, pid: int) -> bool:
    """Whether a process belongs to a unit of this run. A pid that is not known to be ours is somebody else's."""
    fact = t.fact(f"pid:{pid}", f"pid {pid} is not ours")
    if not isinstance(fact, dict):
        return False
    unit = str(fact.get("unit", ""))
    return own_unit(t, unit.rsplit("/", 1)[-1])


def process_words(t: Trace, pid: int) -> str:
    """What is known of a process, for people."""
    fact = t.facts.known.get(f"pid:{pid}")
    if not isinstance(fact, dict):
        return f"pid {pid}, of which nothing is known"
    since = fact.get("since")
    when = f", started {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M} UTC" if isinstance(since, int) else ""
    return f"pid {pid} {fact.get('name', '')}{when}, {fact.get('unit') or 'no unit'}"


def port_allowed(t: Trace, port: int | None) -> bool:
    return port is not None and any(low <= port <= high for low, high in t.policy.ports)
