"""The world of a lab: hosts, their processes and what runs in them, one clock, one lock. All state is per instance."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opsagent_lab import processes
from opsagent_lab.clock import LabClock
from opsagent_lab.files import Files, View
from opsagent_lab.network import Listener, reaches
from opsagent_lab.program import Process, Registry, Stdin, Writer
from opsagent_lab.state import Gpu, JournalLine, SimHost, SimProcess

Views = Callable[["World", SimHost], dict[str, View]]


def no_views(_world: World, _host: SimHost) -> dict[str, View]:
    return {}


@dataclass
class World:
    """Hosts by name, and everything that is running in them."""

    hosts: dict[str, SimHost]
    clock: LabClock
    registry: Registry
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """The scenario's tables that programs read (`hub`, `uv`, `engine` …)."""
    extras: dict[str, Any] = field(default_factory=dict)
    """State outside of any host, e.g. the model hub's (JSON values only; saved with the lab)."""
    views: Views = no_views
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Hold it around every change that takes more than one step. Never sleep while holding it."""
    listeners: list[Listener] = field(default_factory=list)
    running: dict[tuple[str, int], Process] = field(default_factory=dict)
    power: Callable[[SimHost, bool], None] = lambda _host, _up: None
    """Told when a host goes down or up (its SSH port follows)."""
    links: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """Host → functions that cut one open connection each."""
    bugs: list[str] = field(default_factory=list)
    """Tracebacks of programs that fell over: a lab that has any is broken."""
    closing: bool = False
    random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.random.seed(self.seed)

    # -- time and hosts

    def now(self) -> float:
        """Simulated epoch seconds."""
        return self.clock.now()

    def host(self, name: str) -> SimHost:
        return self.hosts[name]

    def machine(self, host: SimHost) -> SimHost:
        """The physical machine of a container (or the machine itself)."""
        return self.hosts[host.parent] if host.parent else host

    def containers(self, host: SimHost) -> list[SimHost]:
        return sorted((h for h in self.hosts.values() if h.parent == host.name), key=lambda h: h.ctid)

    def files(self, host: SimHost) -> Files:
        return Files(host.nodes, self.now, host.disks, self.views(self, host))

    def resolve(self, name: str) -> SimHost | None:
        """The host that a network name or address belongs to (None: unknown)."""
        for host in self.hosts.values():
            if name in (host.name, host.hostname) or name in host.addresses:
                return host
        return None

    def count(self, host: SimHost, what: str) -> None:
        """Count something with an effect, so that a test can see that nothing happened twice."""
        with self.lock:
            host.counters[what] = host.counters.get(what, 0) + 1

    # -- logs

    def log(self, host: SimHost, ident: str, text: str, *, pid: int = 0, unit: str = "") -> None:
        """Add a line to the host's journal."""
        host.journal.append(JournalLine(self.now(), ident, pid, text, unit))

    def kernel(self, host: SimHost, text: str) -> None:
        """Add a line to the machine's kernel log."""
        machine = self.machine(host)
        machine.dmesg.append((round(self.now() - machine.booted, 6), text))

    # -- GPUs

    def gpu_used_mib(self, gpu: Gpu) -> int:
        """Memory of a card that is in use, over all hosts and containers (each card belongs to one machine)."""
        held = sum(p.gpu_mib.get(gpu.uuid, 0) for h in self.hosts.values() for p in list(h.processes.values()))
        return gpu.idle_used_mib + held

    def gpu_free_mib(self, gpu: Gpu) -> int:
        return max(0, gpu.total_mib - gpu.reserved_mib - self.gpu_used_mib(gpu))

    # -- processes (see processes.py)

    def run_child(
        self,
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
        return processes.run_child(self, parent, argv, env=env, stdin=stdin, out=out, err=err, host=host, cwd=cwd)

    def spawn(self, host: SimHost, argv: list[str], **how: Any) -> SimProcess:
        """Start a program in the background: see `processes.spawn`."""
        return processes.spawn(self, host, argv, **how)

    def add_process(self, host: SimHost, argv: list[str], **fields: Any) -> SimProcess:
        """A process that only exists (a scheduler of a server, something in a scenario): see `processes.add`."""
        return processes.add(self, host, argv, **fields)

    def end_process(self, host: SimHost, pid: int) -> None:
        """Take a process away, with its GPU memory and ports."""
        processes.end(self, host, pid)

    def signal(self, host: SimHost, pid: int, signum: int) -> bool:
        """Send a signal; False when there is no such process."""
        return processes.signal(self, host, pid, signum)

    # -- ports

    def listen(self, listener: Listener) -> bool:
        with self.lock:
            host = self.hosts[listener.host]
            for other in self.listeners:
                if (
                    other.host == listener.host
                    and other.port == listener.port
                    and _collide(other.address, listener.address)
                ):
                    return False
            self.listeners.append(listener)
            process = host.processes.get(listener.pid)
            if process is not None and (listener.address, listener.port) not in process.ports:
                process.ports.append((listener.address, listener.port))
            return True

    def unlisten(self, host: SimHost, pid: int, port: int | None = None) -> None:
        with self.lock:
            mine = [x for x in self.listeners if x.host == host.name and x.pid == pid and port in (None, x.port)]
            self.listeners[:] = [x for x in self.listeners if x not in mine]
            process = host.processes.get(pid)
            if process is not None:
                process.ports = [p for p in process.ports if p not in [(x.address, x.port) for x in mine]]

    def connect(self, client: SimHost, name: str, port: int) -> Listener | None:
        """The listener that a connection reaches, or None (refused). Raises LookupError for an unknown name, TimeoutError
        for a host that is down."""
        local = name in ("127.0.0.1", "localhost", "::1")
        target = client if local else self.resolve(name)
        if target is None:
            raise LookupError(name)
        if not target.on or not self.machine(target).on:
            raise TimeoutError(name)
        return next(
            (x for x in self.listeners if x.port == port and reaches(x, target.name, name, target.addresses)), None
        )

    # -- links

    def cut_links(self, host: SimHost) -> None:
        """Drop every open connection to a host (and to its containers' parent)."""
        for cut in list(self.links.get(host.name, [])):
            cut()


def _collide(a: str, b: str) -> bool:
    wild = ("0.0.0.0", "::", "*")
    return a == b or a in wild or b in wild
