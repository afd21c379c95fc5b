"""Servers of others on a host: what listens or holds GPU memory there, and whether that is still so after we wrote.

Compared are things that a tenant would miss: the port that answers, the health of a model server, the process on the card.
Ports that come and go are none of them: a listener counts when it is a model server or a service of the system, or when it
has been there for a while on a port that somebody chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsagent_tools.clock import Clock
from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host, argv
from opsagent_tools.machine.gpus import Holder, parse_apps
from opsagent_tools.machine.network import Listener, get, listeners
from opsagent_tools.machine.processes import read_processes, unit_of
from opsagent_tools.machine.servers import read_servers

Bystander = dict[str, Any]
"""{name, port: int|null, pid: int|null, program, unit, health: int|null}; `health` is the HTTP status of a model server."""
OURS = "opsagent-"
"""Units of opsagent's own jobs begin like this."""
PASSING = ("sshd",)
"""They listen on ports that come and go with a login (forwarding)."""
EPHEMERAL = 32768
"""From here on the kernel gives out ports (`ip_local_port_range`): whoever has one may have another tomorrow."""
SETTLED_S = 600
"""So long a process must have listened to count as somebody's server."""
TRIES, PAUSE_S = 3, 5.0
"""A server under load may be slow to answer: it is asked again before anybody is alarmed."""


def look(host: Host, run: str = "") -> list[Bystander]:
    """Every server on the host that is not one of this run's jobs. Raises HostError."""
    sockets = [one for one in _sockets(host) if one.process not in PASSING]
    processes = read_processes(host)
    ages = {process.pid: process.age_s for process in processes}
    servers, _orphans = read_servers(host, processes, sockets)
    by_port = {server.port: server for server in servers if server.port}
    family = {pid for server in servers for pid in server.processes}
    units = {pid: _unit(host, pid) for pid in {one.pid for one in sockets if one.pid}}
    found: list[Bystander] = []
    for port, one in {one.port: one for one in sockets}.items():
        server = by_port.get(port)
        unit = units.get(one.pid or 0, "") or (server.unit if server else "")
        program = server.engine if server else one.process
        health = _health(host, port) if server else None
        settled = port < EPHEMERAL and (one.pid is None or ages.get(one.pid, 0) >= SETTLED_S)
        if not (server or settled or unit.endswith(".service")):
            continue
        found.append(_made(f"port {port}", port, one.pid, program, unit, health))
    listening = {one.pid for one in sockets}
    for holder in _holders(host):
        if holder.pid not in listening | family:
            found.append(_made(f"pid {holder.pid}", None, holder.pid, holder.name, _unit(host, holder.pid), None))
    return [each for each in found if not (run and each["unit"].startswith(f"{OURS}{run}-"))]


def lost(host: Host, before: Sequence[Bystander], clock: Clock) -> list[Bystander]:
    """Those of `before` that are gone or no longer healthy, each with `why`. Raises HostError."""
    missing: list[Bystander] = []
    for attempt in range(TRIES):
        if attempt:
            clock.sleep(PAUSE_S)
        missing = _missing(host, before)
        if not missing:
            break
    return missing


def _missing(host: Host, before: Sequence[Bystander]) -> list[Bystander]:
    open_ports = {one.port for one in _sockets(host)}
    living = {process.pid for process in read_processes(host) if process.state[:1] != "Z"}
    found: list[Bystander] = []
    for each in before:
        port, why = each.get("port"), ""
        if port is None:
            why = "" if each.get("pid") in living else "its process is gone"
        elif port not in open_ports:
            why = "nobody listens on its port any more"
        elif each.get("health") == 200 and (status := _health(host, port)) != 200:
            why = f"/health answers {status or 'nothing'} instead of 200"
        found += [{**each, "why": why}] if why else []
    return found


def words(each: Bystander) -> str:
    """`port 8000 (vllm)`."""
    return f"{each['name']} ({each['program']})" if each.get("program") else str(each["name"])


def _made(name: str, port: int | None, pid: int | None, program: str, unit: str, health: int | None) -> Bystander:
    return {"name": name, "port": port, "pid": pid, "program": program, "unit": unit, "health": health}


def _sockets(host: Host) -> list[Listener]:
    try:
        return listeners(host)
    except ToolFailed:
        return []


def _holders(host: Host) -> list[Holder]:
    done = argv(host, "nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
                "--format=csv,noheader,nounits", timeout_s=60)  # fmt: skip
    held = parse_apps(done.stdout).values() if done.ok else ()
    return list({holder.pid: holder for card in held for holder in card}.values())


def _unit(host: Host, pid: int) -> str:
    done = argv(host, "cat", f"/proc/{pid}/cgroup", timeout_s=20)
    return unit_of(done.stdout)[0] if done.ok else ""


def _health(host: Host, port: int) -> int:
    return get(host, f"http://127.0.0.1:{port}/health", timeout_s=10).status
