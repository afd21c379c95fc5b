"""Is the server that answers on the port the one that we started?

SGLang 0.5.9 to 0.5.11 bind the port only after the full load. When another server has it, the new one's warm-up is
answered by that one, and the log says "ready to roll". So: our process must own the listener, and `/server_info` must
show the random seed that our log shows (it is drawn anew at each start).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opsagent_tools.host import Host, argv
from opsagent_tools.jobs import Job, JobStatus
from opsagent_tools.launch.command import ServerCommand
from opsagent_tools.machine import network
from opsagent_tools.machine.processes import read_processes, tree, unit_of


@dataclass(frozen=True, slots=True)
class Identity:
    """`ours`: True, False (someone else's), or None: nothing could be said, ask again."""

    ours: bool | None
    words: str
    info: dict[str, Any]


def owner(host: Host, job: Job, seen: JobStatus, port: int) -> tuple[bool | None, str]:
    """Whether a process of the job listens on the port. None: nobody does, or the host does not say who."""
    found = network.listeners(host, port)
    if not found:
        return None, f"nobody listens on port {port} yet"
    pids = {one.pid for one in found if one.pid is not None}
    if not pids:
        return None, f"someone listens on port {port}, but the host does not say who"
    mine = set(seen.members)
    if seen.pid:
        mine |= set(tree(read_processes(host), seen.pid))
    if pids & mine or any(_in_unit(host, pid, job) for pid in pids):
        return True, f"pid {sorted(pids)[0]} of {job.name} listens on port {port}"
    names = ", ".join(f"{one.process} (pid {one.pid})" for one in found if one.pid is not None)
    return False, f"port {port} belongs to {names}, not to {job.name}"


def _in_unit(host: Host, pid: int, job: Job) -> bool:
    if job.backend != "systemd":
        return False
    done = argv(host, "cat", f"/proc/{pid}/cgroup", timeout_s=20)
    return done.ok and unit_of(done.stdout)[0] == f"{job.name}.service"


def server_info(host: Host, command: ServerCommand, *, timeout_s: float = 20.0) -> dict[str, Any]:
    """`/server_info` (up to 0.5.8: `/get_server_info`); {} when there is no answer. It holds the API key: never store it."""
    for path in ("/server_info", "/get_server_info"):
        answer = network.get(host, command.local_url + path, api_key=command.api_key, timeout_s=timeout_s)
        if answer.status == 200 and isinstance(answer.json, dict):
            return dict(answer.json)
        if answer.status != 404:
            break
    return {}


def identify(host: Host, job: Job, seen: JobStatus, command: ServerCommand, seed: object) -> Identity:
    """Both proofs. One that fails decides; one that holds is enough when the other cannot be had."""
    holds, words = owner(host, job, seen, command.port)
    if holds is False:
        return Identity(False, words, {})
    info = server_info(host, command)
    other = info.get("random_seed")
    if seed is not None and other is not None and seed != other:
        return Identity(False, f"the server on port {command.port} has random_seed {other}, our log says {seed}", {})
    if info and (holds or (seed is not None and seed == other)):
        return Identity(True, words, info)
    return Identity(None, words if not holds else "/server_info does not answer yet", info)
