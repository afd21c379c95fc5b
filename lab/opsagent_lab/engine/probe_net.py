"""Probes `net` (listening sockets, and one GET) and `procs` (processes)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from opsagent_lab.network import Request
from opsagent_lab.program import Process


def probe_net(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted["op"] == "listen":
        return {"listeners": _listeners(process)}
    return _get(process, wanted)


def _listeners(process: Process) -> list[dict[str, Any]]:
    out = []
    for sim in list(process.host.processes.values()):
        name = sim.title or sim.argv[0].rpartition("/")[2]
        out += [{"address": a, "port": p, "pid": sim.pid, "process": name[:15]} for a, p in sim.ports]
    return sorted(out, key=lambda item: (item["port"], item["address"]))


def _get(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    parts = urlsplit(wanted["url"])
    key = process.stdin.read().decode().strip()
    try:
        listener = process.world.connect(process.host, parts.hostname or "", parts.port or 80)
    except LookupError:
        return {"status": 0, "body": "<urlopen error [Errno -2] Name or service not known>"}
    except TimeoutError:
        process.sleep(float(wanted.get("timeout", 10)))
        return {"status": 0, "body": "timed out"}
    if listener is None:
        return {"status": 0, "body": "<urlopen error [Errno 111] Connection refused>"}
    if listener.service is None:
        process.sleep(float(wanted.get("timeout", 10)))
        return {"status": 0, "body": "timed out"}
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    response = listener.service(process, Request("GET", path, headers))
    body = b"".join(response.chunks())
    return {"status": response.status, "body": body.decode("utf-8", "replace")}


def probe_procs(process: Process, _wanted: dict[str, Any]) -> dict[str, Any]:
    """Probe `procs`: every process of the host."""
    rows = [
        {
            "pid": sim.pid, "parent": sim.ppid, "group": sim.pgid, "session": sim.sid, "user": sim.user,
            "age_s": max(0, int(process.now - sim.started)), "state": sim.state[:1],
            "argv": [sim.title] if sim.title else list(sim.argv),
        }
        for sim in list(process.host.processes.values())
    ]  # fmt: skip
    return {"processes": sorted(rows, key=lambda row: int(str(row["pid"])))}
