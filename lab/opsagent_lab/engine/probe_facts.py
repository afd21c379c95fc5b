"""Probe `facts`: what the gate asks of a host before an action (links, programs, processes, ports, GPUs)."""

from __future__ import annotations

import hashlib
import posixpath
from typing import Any

from opsagent_lab.processes import NotRunnable, which
from opsagent_lab.program import Process

QUIET_MIB = 700


def probe_facts(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in wanted["keys"]:
        kind, _, rest = str(key).partition(":")
        if kind == "path":
            found[key] = _path(process, rest)
        elif kind == "exe":
            found[key] = _program(process, rest)
        elif kind == "pid" and rest.isdigit():
            found[key] = _process(process, int(rest))
        elif kind == "port" and rest.isdigit():
            found[key] = _port(process, int(rest))
        elif kind == "gpus" and process.host.gpus + process.world.machine(process.host).gpus:
            found[key] = _gpus(process)
        elif kind == "sha" and (node := process.files.find(rest)) is not None and node.kind == "file":
            found[key] = node.sha256 or hashlib.sha256(node.data).hexdigest()
    return {"facts": found}


def _path(process: Process, name: str) -> dict[str, Any]:
    try:
        real = process.files.resolve(posixpath.join(process.sim.cwd, name))
    except OSError:
        return {"real": posixpath.normpath(name), "exists": False, "kind": ""}
    node = process.files.find(real)
    if node is None:
        return {"real": real, "exists": False, "kind": ""}
    answer: dict[str, Any] = {"real": real, "exists": True, "kind": node.kind}
    if node.kind == "file":
        answer.update(size=max(node.size, len(node.data)), mtime=int(node.mtime))
    return answer


def _program(process: Process, name: str) -> str | None:
    try:
        return which(process.world, process.host, name, process.env, process.sim.cwd)[0]
    except NotRunnable:
        return None


def _process(process: Process, pid: int) -> dict[str, Any] | None:
    sim = process.host.processes.get(pid)
    if sim is None:
        return None
    name = sim.title or posixpath.basename(sim.argv[0])
    start = int((sim.started - process.host.booted) * 100)
    since = int(sim.started) // 60 * 60
    return {
        "name": name[:15],
        "start": start,
        "unit": posixpath.basename(sim.cgroup),
        "cgroup": sim.cgroup,
        "since": since,
    }


def _port(process: Process, port: int) -> dict[str, Any]:
    for sim in list(process.host.processes.values()):
        if any(each == port for _address, each in sim.ports):
            return {"free": False, "owner": f"pid {sim.pid}"}
    return {"free": True, "owner": ""}


def _gpus(process: Process) -> dict[str, Any]:
    hosts = list(process.world.hosts.values())
    machine = process.world.machine(process.host)
    used = [
        gpu.idle_used_mib + sum(p.gpu_mib.get(gpu.uuid, 0) for h in hosts for p in list(h.processes.values()))
        for gpu in machine.gpus
    ]
    return {"free": all(mib < QUIET_MIB for mib in used), "used_mib": used}
