"""Life and death of simulated processes: finding the program, running it in a thread, signals, and what the end frees."""

from __future__ import annotations

import io
import posixpath
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opsagent_lab.program import SIGKILL, SIGTERM, Exit, Killed, Process, Stdin, Writer
from opsagent_lab.state import Node, SimHost, SimProcess

if TYPE_CHECKING:
    from opsagent_lab.world import World

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NotRunnable(Exception):
    """Control signal inside the lab: exec failed. `code` is what a shell returns, `words` what it says."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


def which(world: World, host: SimHost, name: str, env: dict[str, str], cwd: str = "/") -> tuple[str, Node]:
    """Path and node of the program that a name means. Raises NotRunnable (127 not found, 126 not executable)."""
    files = world.files(host)
    if "/" in name:
        path = posixpath.normpath(posixpath.join(cwd, name))
        node = files.find(path)
        if node is None:
            raise NotRunnable(127, "No such file or directory")
        if node.kind == "dir":
            raise NotRunnable(126, "Is a directory")
        if not node.mode & 0o111:
            raise NotRunnable(126, "Permission denied")
        return path, node
    for folder in env.get("PATH", DEFAULT_PATH).split(":"):
        node = files.find(posixpath.join(folder or cwd, name))
        if node is not None and node.kind == "file" and node.mode & 0o111:
            return posixpath.join(folder, name), node
    raise NotRunnable(127, "command not found")


def add(world: World, host: SimHost, argv: list[str], **fields: Any) -> SimProcess:
    """Enter a process into the host's table; `fields` are those of SimProcess."""
    with world.lock:
        pid = int(fields.pop("pid", 0)) or host.next_pid
        while pid in host.processes:
            pid += 1
        host.next_pid = max(host.next_pid, pid + 1 + world.random.randrange(3))
        sim = SimProcess(pid, int(fields.pop("ppid", 1)), list(argv), fields.pop("started", world.now()), **fields)
        sim.pgid, sim.sid = sim.pgid or pid, sim.sid or pid
        host.processes[pid] = sim
        return sim


def seen(world: World, host: SimHost) -> list[SimProcess]:
    """The processes that a host sees, by pid: its own, and on a machine those of its containers under other pids."""
    out = list(host.processes.values())
    for child in world.containers(host):
        for sim in list(child.processes.values()):
            out.append(
                replace(
                    sim, pid=outer_pid(child, sim.pid), ppid=outer_pid(child, sim.ppid) if sim.ppid else 1,
                    pgid=outer_pid(child, sim.pgid), sid=outer_pid(child, sim.sid), unit="", ports=[],
                    cgroup=f"/lxc/{child.ctid}/ns{sim.cgroup if sim.cgroup.startswith('/system') else ''}",
                )
            )  # fmt: skip
    return sorted(out, key=lambda sim: sim.pid)


def outer_pid(container: SimHost, pid: int) -> int:
    """The pid that a container's process has on the machine."""
    return container.ctid * 10_000 + pid


def _inner(world: World, host: SimHost, pid: int) -> tuple[SimHost, int]:
    """The host and pid that a pid on a machine means: a container's process or the machine's own."""
    for child in world.containers(host):
        if pid // 10_000 == child.ctid:
            return child, pid % 10_000
    return host, pid


def end(world: World, host: SimHost, pid: int) -> None:
    with world.lock:
        world.unlisten(host, pid)
        gone = host.processes.pop(pid, None)
        world.running.pop((host.name, pid), None)
        for child in host.processes.values():
            if gone is not None and child.ppid == pid:
                child.ppid = 1


def signal(world: World, host: SimHost, pid: int, signum: int) -> bool:
    if pid not in host.processes:
        host, pid = _inner(world, host, pid)
    with world.lock:
        sim = host.processes.get(pid)
        if sim is None:
            return False
        if signum == 0:
            return True
        live = world.running.get((host.name, pid))
        if live is not None:
            live.pending.append(signum)
            for process in list(world.running.values()):
                if process is live or live in process.ancestors():
                    process.woken.set()
        elif _ends(sim, signum):
            sim.exit_code = 128 + signum
            end(world, host, pid)
        return True


def _ends(sim: SimProcess, signum: int) -> bool:
    """Whether a signal ends a process that only exists in the table (init, zombies and D states stay)."""
    deadly = signum == SIGKILL or (signum in (1, 2, 3, 6, SIGTERM) and not sim.stubborn)
    return deadly and sim.pid != 1 and sim.state not in ("D", "Z")


def execute(process: Process) -> int:
    """Run the program of a process in this thread; returns its exit code."""
    world = process.world
    try:
        path, node = which(world, process.host, process.argv[0], process.env, process.sim.cwd)
        program = world.registry.get(node.program)
        if program is None:
            raise NotRunnable(126, "cannot execute binary file: Exec format error")
        process.sim.program = node.program
        process.sim.memo.setdefault("path", path)
        return program(process)
    except NotRunnable as problem:
        process.err(f"bash: line 1: {process.argv[0]}: {problem.words}\n".encode())
        return problem.code
    except Killed as death:
        return 128 + death.signum
    except Exit as stop:
        return stop.code
    except BrokenPipeError:
        return 141
    except OSError as problem:
        if problem.errno is None or problem.errno < 0:
            raise
        process.err(f"{process.argv[0]}: write error: {problem.strerror}\n".encode())
        return 1
    except Exception:
        world.bugs.append(f"{process.host.name}: {process.argv}\n{traceback.format_exc()}")
        process.err(f"lab: internal error in {process.argv[0]}: {traceback.format_exc(limit=-2)}\n".encode())
        return 70


def run_child(
    world: World,
    parent: Process,
    argv: list[str],
    *,
    env: dict[str, str],
    stdin: Stdin,
    out: Writer,
    err: Writer,
    host: SimHost,
    cwd: str | None = None,
) -> int:
    """A child in the parent's thread. A signal that ends the parent ends it first; its sleeps count for the parent's
    alarm."""
    same = host is parent.host
    sim = add(
        world,
        host,
        argv,
        ppid=parent.sim.pid if same else 0,
        pgid=parent.sim.pgid if same else 0,
        sid=parent.sim.sid if same else 0,
        user=parent.sim.user,
        cgroup=parent.sim.cgroup if same else f"/lxc/{host.ctid}/ns",
        unit=parent.sim.unit if same else "",
        env=dict(env),
        cwd=cwd or (parent.sim.cwd if same else "/root"),
    )
    child = Process(world, host, sim, list(argv), dict(env), stdin, out, err, gone=parent.gone)
    child.alarm, child.alarm_signal = parent.alarm, parent.alarm_signal
    child.parent = parent
    child.handlers = dict(parent.handlers) if argv and argv[0] == "nohup" else {}
    world.running[(host.name, sim.pid)] = child
    try:
        return execute(child)
    finally:
        parent.slept += child.slept
        if parent.alarm is not None:
            parent.alarm = max(0.0, parent.alarm - child.slept)
        end(world, host, sim.pid)
        parent.checkpoint()


def spawn(
    world: World,
    host: SimHost,
    argv: list[str],
    *,
    env: dict[str, str] | None = None,
    out: Writer | None = None,
    err: Writer | None = None,
    stdin: Stdin | None = None,
    done: Callable[[SimProcess, int], None] | None = None,
    sim: SimProcess | None = None,
    **fields: Any,
) -> SimProcess:
    """Start a program in a thread of its own. It survives the connection that started it. `done(sim, code)` runs at its end.

    `fields` are those of SimProcess (cgroup, unit, cwd, user, ppid, log). With `sim` an existing entry gets its thread
    back (after the lab was restored).
    """
    entry = sim or add(world, host, argv, env=dict(env or {}), **fields)
    entry.memo["spawned"] = True
    writer = out or _append_to(world, host, entry)
    process = Process(world, host, entry, list(argv), dict(entry.env), stdin or io.BytesIO(), writer, err or writer)
    world.running[(host.name, entry.pid)] = process

    def body() -> None:
        code = execute(process)
        entry.exit_code = code
        if world.closing:
            return
        end(world, host, entry.pid)
        if done is not None:
            done(entry, code)

    threading.Thread(target=body, name=f"{host.name}:{entry.pid}:{argv[0]}", daemon=True).start()
    return entry


def _append_to(world: World, host: SimHost, sim: SimProcess) -> Writer:
    """Where a background process prints: its log file, or the journal line by line."""
    rest = bytearray()

    def write(data: bytes) -> None:
        if sim.log:
            world.files(host).write(sim.log, data, append=True)
            return
        rest.extend(data)
        while (cut := rest.find(b"\n")) >= 0:
            text = bytes(rest[:cut]).decode("utf-8", "replace")
            del rest[: cut + 1]
            world.log(host, posixpath.basename(sim.argv[0]), text, pid=sim.pid, unit=sim.unit)

    return write
