"""Probes `net` (listening sockets, and one GET), `together` (several POSTs at once) and `procs` (processes)."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from opsagent_lab.network import Listener, Request
from opsagent_lab.program import Killed, Process


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


def probe_together(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    given, parts = json.loads(process.stdin.read()), urlsplit(wanted["url"])
    headers = {"content-type": "application/json"}
    if given["key"]:
        headers["authorization"] = f"Bearer {given['key']}"
    try:
        listener = process.world.connect(process.host, parts.hostname or "", parts.port or 80)
    except (LookupError, TimeoutError):
        listener = None
    if listener is None or listener.service is None:
        row = {"status": 0, "body": "[Errno 111] Connection refused", "seconds": 0.0, "began": 0.0}
        return {"answers": [dict(row) for _ in given["bodies"]], "seconds": 0.0, "peak": None}
    began, rows = process.now, [dict[str, Any]() for _ in given["bodies"]]
    threads = [
        threading.Thread(
            target=_post,
            args=(process, listener, Request("POST", wanted["path"], headers, json.dumps(b).encode()), row),
        )
        for b, row in zip(given["bodies"], rows, strict=True)
    ]
    for thread in threads:
        thread.start()
    peak: int | None = None
    while any(thread.is_alive() for thread in threads):
        said = json.loads(b"".join(listener.service(process, Request("GET", "/v1/loads", headers)).chunks()))
        if "loads" in said:
            peak = max(peak or 0, sum(rank["num_running_reqs"] for rank in said["loads"]))
        process.sleep(0.5)
    return {"answers": rows, "seconds": round(process.now - began, 3), "peak": peak}


def _post(process: Process, listener: Listener, request: Request, row: dict[str, Any]) -> None:
    """One request in a thread of its own: a thread of the same process, with its own waiting."""
    own = replace(process, woken=threading.Event(), alarm=None)
    began = own.now
    try:
        assert listener.service is not None
        response = listener.service(own, request)
        row.update(status=response.status, body=b"".join(response.chunks()).decode("utf-8", "replace"))
    except Killed:
        row.update(status=0, body="killed")
    row.update(began=0.0, seconds=round(own.now - began, 3))


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
