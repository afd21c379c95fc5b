"""Probe `job`: long commands on a machine without systemd, and what systemd-run needs before it starts."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from opsagent_lab.processes import NotRunnable, which
from opsagent_lab.program import Process
from opsagent_lab.state import Node, SimProcess

_SIGNALS = {"TERM": 15, "KILL": 9, "INT": 2}
_KEEP = 5


def probe_job(process: Process, job: dict[str, Any]) -> dict[str, Any]:
    actions = {"prepare": _prepare, "start": _start, "status": _status, "signal": _send, "drop": _drop, "watch": _watch}
    return actions[job["op"]](process, job)


def _env(process: Process) -> dict[str, str]:
    value: dict[str, str] = json.loads(process.stdin.read() or b"{}")
    return value


def folder(process: Process, name: str) -> str:
    root = "/var/lib/opsagent/jobs" if process.user == "root" else f"/home/{process.user}/.local/state/opsagent/jobs"
    return posixpath.join(process.env.get("OPSAGENT_JOBS_DIR") or root, name)


def ticks(process: Process, sim: SimProcess) -> str:
    """Start time in clock ticks since boot, as /proc/PID/stat has it."""
    return str(int((sim.started - process.world.machine(process.host).booted) * 100))


def _rotate(process: Process, log: str) -> str | None:
    files = process.files
    files.mkdir(posixpath.dirname(log), parents=True)
    node = files.find(log)
    if node is None or node.size == 0:
        return None
    for n in range(_KEEP - 1, 0, -1):
        if files.exists(f"{log}.{n}"):
            files.rename(f"{log}.{n}", f"{log}.{n + 1}")
    files.rename(log, f"{log}.1")
    return f"{log}.1"


def _prepare(process: Process, job: dict[str, Any]) -> dict[str, Any]:
    env = _env(process)
    if job.get("cwd") and not process.files.is_dir(job["cwd"]):
        return {"error": f"no such directory: {job['cwd']}"}
    rotated, path = _rotate(process, job["log"]), None
    if job.get("env_file"):
        path = posixpath.join(folder(process, job["name"]), "env")
        text = "".join(f"{key}={_quoted(value)}\n" for key, value in sorted(env.items())).encode()
        process.files.put(path, Node(mode=0o600, data=text, size=len(text)))
    return {"log": job["log"], "rotated": rotated, "env_file": path, "home": process.env.get("HOME", "/root")}


def _quoted(value: str) -> str:
    for special in '\\"`$':
        value = value.replace(special, "\\" + special)
    return f'"{value}"'


def _jobs(process: Process) -> dict[str, dict[str, Any]]:
    jobs: dict[str, dict[str, Any]] = process.host.extras.setdefault("jobs", {})
    return jobs


def _start(process: Process, job: dict[str, Any]) -> dict[str, Any]:
    env, jobs = _env(process), _jobs(process)
    known = jobs.get(job["name"])
    if known:
        return {"pid": known["pid"], "started": known["started"], "existing": True}
    inherited = {k: v for k, v in process.env.items() if not k.startswith(("OPENAI_", "OPSAGENT_"))} | env
    cwd = job.get("cwd") or process.sim.cwd
    try:
        which(process.world, process.host, job["argv"][0], inherited, cwd)
    except NotRunnable as problem:
        return {"error": f"{job['argv'][0]}: {problem.words}"}
    process.files.mkdir(posixpath.dirname(job["log"]), parents=True)
    if not process.files.exists(job["log"]):
        process.files.put(job["log"], Node())

    def ended(_sim: SimProcess, code: int) -> None:
        jobs[job["name"]]["exit_code"] = code

    record: dict[str, Any] = {
        "log": job["log"],
        "boot": process.host.boot_id,
        "exit_code": None,
        "pid": 0,
        "started": "",
    }
    jobs[job["name"]] = record
    sim = process.world.spawn(
        process.host, list(job["argv"]), env=inherited, log=job["log"], cwd=cwd, user=process.user, done=ended,
        cgroup=process.sim.cgroup,
    )  # fmt: skip
    record |= {"pid": sim.pid, "started": ticks(process, sim)}
    where = posixpath.join(folder(process, job["name"]), "job.json")
    text = json.dumps({"name": job["name"], "pid": sim.pid, "started": record["started"], "log": job["log"]}).encode()
    process.files.put(where, Node(data=text, size=len(text)))
    return {"pid": sim.pid, "started": record["started"], "existing": False}


def _members(process: Process, record: dict[str, Any]) -> list[int]:
    if record["boot"] != process.host.boot_id:
        return []
    return sorted(
        p.pid for p in list(process.host.processes.values()) if p.sid == record["pid"] and p.state not in "ZX"
    )


def _status(process: Process, job: dict[str, Any]) -> dict[str, Any]:
    record = _jobs(process).get(job["name"])
    if record is None:
        return {"state": "gone", "exit_code": None, "pid": None, "started": "", "members": [], "log": ""}
    members = _members(process, record)
    state = "exited" if record["exit_code"] is not None else "running" if record["pid"] in members else "lost"
    return {
        "state": state, "exit_code": record["exit_code"], "pid": record["pid"], "started": record["started"],
        "members": members, "log": record["log"],
    }  # fmt: skip


def _send(process: Process, job: dict[str, Any]) -> dict[str, Any]:
    record = _jobs(process).get(job["name"])
    found = _members(process, record) if record else []
    for pid in found:
        process.world.signal(process.host, pid, _SIGNALS[job["signal"]])
    return {"members": found}


def _watch(_process: Process, _job: dict[str, Any]) -> dict[str, Any]:
    """No simulated server writes so much that its log would have to be turned over."""
    return {"watching": 2}


def _drop(process: Process, job: dict[str, Any]) -> dict[str, Any]:
    if not process.files.exists(job["path"]):
        return {"dropped": False}
    process.files.unlink(job["path"])
    return {"dropped": True}
