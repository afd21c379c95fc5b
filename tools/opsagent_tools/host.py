"""The `Host` protocol: where calls act. Implemented over SSH, for this machine, and for a container of another host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

Argv = tuple[str, ...]
Stream = Literal["stdout", "stderr"]
Sink = Callable[[Stream, bytes], None]
"""Receives every chunk of output as it arrives; a tool keeps the whole output by passing one."""


@dataclass(frozen=True, slots=True)
class Command:
    """A pipe of one or more argv. We quote; nobody writes shell text."""

    stages: tuple[Argv, ...]
    stdin: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0

    @classmethod
    def of(
        cls, *argv: str, stdin: str | None = None, timeout_s: float = 60.0, env: dict[str, str] | None = None
    ) -> Command:
        return cls((tuple(argv),), stdin=stdin, timeout_s=timeout_s, env=env or {})


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended. `stdout` and `stderr` are clipped head and tail to `keep` bytes each, decoded with U+FFFD."""

    exit_code: int
    """Exit status of the last stage; 128 + n after signal n; 124 after our time limit (the far side killed it)."""
    stdout: str
    stderr: str
    stdout_bytes: int
    """Bytes seen in all, before clipping."""
    stderr_bytes: int
    duration_s: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


@runtime_checkable
class Host(Protocol):
    """One machine (or container). Thread-safe; at most 8 commands at once.

    `run` raises HostUnreachable when nothing was executed, OutcomeUnknown when the link was lost in between. It never
    reconnects in the middle of a command. A command that ends with any exit code is a result, not an error.
    """

    @property
    def name(self) -> str: ...

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed: ...

    def close(self) -> None: ...


def argv(
    host: Host,
    *args: str,
    stdin: str | None = None,
    timeout_s: float = 60.0,
    keep: int = 65536,
    sink: Sink | None = None,
    env: Sequence[tuple[str, str]] = (),
) -> Completed:
    """Run one argv: the everyday form of `Host.run`."""
    return host.run(Command((tuple(args),), stdin=stdin, timeout_s=timeout_s, env=dict(env)), sink=sink, keep=keep)
