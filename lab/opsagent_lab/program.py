"""A program of a simulated host: a function from its `Process` to an exit code.

It reads `argv`, `env` and `stdin`, writes through `write_out` and `write_err`, sleeps on the lab's clock, and acts on the
state of its host. Signals arrive at `sleep`, `checkpoint` and writes: unless the program handles them they end it.
"""

from __future__ import annotations

import io
import posixpath
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from opsagent_lab.files import Files
from opsagent_lab.network import Listener, Service
from opsagent_lab.state import SimHost, SimProcess

if TYPE_CHECKING:
    from opsagent_lab.world import World

SIGHUP, SIGINT, SIGKILL, SIGTERM = 1, 2, 9, 15


class Killed(Exception):
    """Control signal inside the lab: the process ends by `signum`."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"signal {signum}")
        self.signum = signum


class Exit(Exception):
    """Control signal inside the lab: the program calls exit(code) from somewhere deep."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit {code}")
        self.code = code


class Stdin(Protocol):
    """What a program reads: bytes until the end; b'' when there is none."""

    def read(self, size: int = -1, /) -> bytes: ...


Writer = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Output:
    """What a program that was run by another one printed, and how it ended."""

    code: int
    out: bytes
    err: bytes


@dataclass
class Process:
    """A running program's view of its world."""

    world: World
    host: SimHost
    sim: SimProcess
    argv: list[str]
    env: dict[str, str]
    stdin: Stdin
    out: Writer
    err: Writer
    alarm: float | None = None
    """Simulated seconds of sleep that are left before `timeout` (an outer program) ends this one."""
    alarm_signal: int = SIGTERM
    handlers: dict[int, Callable[[int], None]] = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)
    woken: threading.Event = field(default_factory=threading.Event)
    slept: float = 0.0
    parent: Process | None = None
    """The program in whose thread this one runs; a signal that ends it ends this one first."""
    gone: Callable[[], bool] = lambda: False
    """True when the far side of the connection is gone (a write then ends the program, as SIGPIPE does)."""

    # -- who and where

    @property
    def user(self) -> str:
        return self.sim.user

    @property
    def name(self) -> str:
        """What the program calls itself in messages."""
        return posixpath.basename(self.argv[0])

    @property
    def args(self) -> list[str]:
        return self.argv[1:]

    @property
    def files(self) -> Files:
        return self.world.files(self.host)

    def path(self, text: str) -> str:
        """An absolute, normalised path (links unresolved)."""
        return posixpath.normpath(posixpath.join(self.sim.cwd, text))

    # -- output

    def write_out(self, data: str | bytes) -> None:
        self.checkpoint()
        self.out(data.encode() if isinstance(data, str) else data)

    def write_err(self, data: str | bytes) -> None:
        self.checkpoint()
        self.err(data.encode() if isinstance(data, str) else data)

    def fail(self, message: str, code: int = 1) -> int:
        """`name: message` on stderr, and the exit code."""
        self.write_err(f"{self.name}: {message}\n")
        return code

    # -- time and signals

    @property
    def now(self) -> float:
        return self.world.now()

    def sleep(self, seconds: float) -> None:
        """Wait simulated seconds; raises Killed when a signal (or the alarm of an outer `timeout`) arrives.

        The alarm counts the seconds that were slept, not the wall clock: a slow test machine ends nothing early.
        """
        left = seconds
        if self.alarm is not None:
            left = min(seconds, self.alarm)
        self._wait(left)
        self.slept += left
        if self.alarm is not None:
            self.alarm -= left
            if left < seconds or self.alarm <= 0:
                self.alarm = None
                raise Killed(self.alarm_signal)

    def _wait(self, seconds: float) -> None:
        until = self.world.now() + seconds
        while True:
            self.checkpoint()
            left = until - self.world.now()
            if left <= 0:
                return
            self.woken.wait(self.world.clock.real(left))
            self.woken.clear()

    def checkpoint(self) -> None:
        """Deliver pending signals: call the handler, or end by raising Killed."""
        while self.pending:
            signum = self.pending.pop(0)
            handler = self.handlers.get(signum) if signum != SIGKILL else None
            if handler is None:
                raise Killed(signum)
            handler(signum)
        for above in self.ancestors():
            if above.killed:
                raise Killed(next(s for s in above.pending if s == SIGKILL or s not in above.handlers))

    def ancestors(self) -> list[Process]:
        """The programs in whose run this one runs, nearest first."""
        out: list[Process] = []
        above = self.parent
        while above is not None:
            out.append(above)
            above = above.parent
        return out

    def on_signal(self, signum: int, handler: Callable[[int], None]) -> None:
        self.handlers[signum] = handler

    @property
    def killed(self) -> bool:
        """True when a signal waits that would end the program (for programs that poll instead of sleeping)."""
        return any(s == SIGKILL or s not in self.handlers for s in self.pending)

    # -- other programs

    def run(
        self,
        argv: list[str],
        *,
        env: dict[str, str] | None = None,
        stdin: Stdin | None = None,
        out: Writer | None = None,
        err: Writer | None = None,
        host: SimHost | None = None,
        cwd: str | None = None,
    ) -> int:
        """Run another program to its end (a child on this or another host) and return its exit code (128 + n by signal)."""
        return self.world.run_child(
            self,
            argv,
            env=self.env if env is None else env,
            stdin=self.stdin if stdin is None else stdin,
            out=out or self.out,
            err=err or self.err,
            host=host or self.host,
            cwd=cwd,
        )

    def capture(self, argv: list[str], *, stdin: bytes = b"", env: dict[str, str] | None = None) -> Output:
        """Run another program and keep what it prints."""
        out, err = io.BytesIO(), io.BytesIO()
        code = self.run(
            argv, env=env, stdin=io.BytesIO(stdin), out=lambda b: _keep(out, b), err=lambda b: _keep(err, b)
        )
        return Output(code, out.getvalue(), err.getvalue())

    # -- devices and network

    def listen(self, address: str, port: int, service: Service | None = None) -> bool:
        """Listen on a port; False when somebody else does already (EADDRINUSE)."""
        return self.world.listen(Listener(self.host.name, address, port, self.sim.pid, service))


def _keep(buffer: io.BytesIO, data: bytes) -> None:
    buffer.write(data)


Program = Callable[[Process], int]

Registry = dict[str, Program]
"""Program name → function. Files of a host name the program that they run (`Node.program`)."""


def join(*registries: Registry) -> Registry:
    """One registry out of several; a name that two of them claim is a mistake."""
    out: Registry = {}
    for registry in registries:
        both = out.keys() & registry.keys()
        if both:
            raise ValueError(f"two programs are called {', '.join(sorted(both))}")
        out.update(registry)
    return out
