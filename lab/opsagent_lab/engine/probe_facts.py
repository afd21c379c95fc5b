"""Probe `facts`: what the gate asks before an action and again before its effect."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable
from typing import Any

from opsagent_lab.engine.probe_job import ticks
from opsagent_lab.files import Files, digest
from opsagent_lab.gpu_access import access
from opsagent_lab.processes import NotRunnable, which
from opsagent_lab.program import Process

_BIG = 16 << 20
_QUIET_MIB = 700


def probe_facts(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    kinds: dict[str, Callable[[Process, str], Any]] = {
        "path": _path, "sha": _sha, "exe": _exe, "pid": _pid, "port": _port, "gpus": _gpus,
    }  # fmt: skip
    found = {}
    for key in wanted["keys"]:
        kind, _, rest = key.partition(":")
        with contextlib.suppress(OSError, KeyError, ValueError):
            found[key] = kinds[kind](process, rest)
    return {"facts": found}


def real_path(files: Files, path: str) -> str:
    """os.path.realpath: links resolved as far as there is anything, the rest kept."""
    path = posixpath.normpath(path)
    try:
        return files.resolve(path)
    except OSError:
        head, tail = posixpath.split(path)
        return path if head == path else posixpath.join(real_path(files, head), tail)


def _path(process: Process, name: str) -> dict[str, Any]:
    real = real_path(process.files, process.path(name))
    node = process.files.find(real)
    if node is None:
        return {"real": real, "exists": False, "kind": ""}
    answer: dict[str, Any] = {"real": real, "exists": True, "kind": node.kind}
    if node.kind == "file":
        answer |= {"size": node.size, "mtime": int(node.mtime)}
    return answer


def _sha(process: Process, name: str) -> str:
    node = process.files.get(process.path(name))
    if node.size > _BIG or node.kind != "file":
        raise OSError("too big")
    return digest(node)


def _exe(process: Process, name: str) -> str | None:
    try:
        return which(process.world, process.host, name, process.env)[0]
    except NotRunnable:
        return None


def _pid(process: Process, number: str) -> dict[str, Any] | None:
    sim = process.host.processes.get(int(number))
    if sim is None:
        return None
    name = (sim.title or posixpath.basename(sim.argv[0]))[:15]
    unit = posixpath.basename(sim.cgroup)
    since = int(sim.started) // 60 * 60
    return {"name": name, "start": int(ticks(process, sim)), "unit": unit, "cgroup": sim.cgroup, "since": since}


def _port(process: Process, number: str) -> dict[str, Any]:
    taken = any(x.host == process.host.name and x.port == int(number) for x in process.world.listeners)
    return {"free": not taken, "owner": f"inode {40_000 + int(number)}" if taken else ""}


def _gpus(process: Process, _rest: str) -> dict[str, Any]:
    seen = access(process.world, process.host, process.user)
    if not seen.ok:
        raise OSError("no nvidia-smi")
    busy = [gpu.index for gpu in seen.gpus if process.world.gpu_used_mib(gpu) >= _QUIET_MIB]
    return {"free": not busy, "busy": busy}
