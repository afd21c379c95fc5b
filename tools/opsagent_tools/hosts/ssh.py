"""A host over SSH. Fabric configures and connects; commands run on raw channels, in bounded memory, and end in one of
three ways: an exit code, HostUnreachable (nothing was executed), OutcomeUnknown (the link was lost in between).
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from dataclasses import dataclass, field

import fabric  # type: ignore[import-untyped]
import paramiko
from paramiko.ssh_exception import ChannelException, SSHException

from opsagent_tools.errors import HostUnreachable, OutcomeUnknown
from opsagent_tools.host import Command, Completed, Sink, Stream
from opsagent_tools.hosts import wire
from opsagent_tools.hosts.connect import SshTarget, connect
from opsagent_tools.hosts.output import Clip

CHANNELS = 8
"""At once on one link: sshd's default MaxSessions is 10."""
CHUNK = 65536
GRACE_S = 10.0
"""How much later than the far side's own time limit we give up waiting for an answer."""
SESSION_S = 20.0
"""For the answer to "open a session": one small packet each way."""
SESSION_PATIENCE_S = 2.0
LINGER_S = 1.0
"""How long output is still read after the exit code: a daemon that kept the descriptors must not hold us."""


@dataclass
class SshHost:
    """One link to one machine, opened at the first command and again after it was lost, but never within a command."""

    name: str
    target: SshTarget
    _connection: fabric.Connection | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _slots: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(CHANNELS), repr=False)

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        text = wire.line(command)
        with self._slots:
            channel = self._channel()
            started = time.monotonic()
            try:
                self._execute(channel, text)
                if command.stdin is None:
                    channel.shutdown_write()
                else:
                    threading.Thread(target=_feed, args=(channel, command.stdin.encode()), daemon=True).start()
                return self._follow(channel, command, sink, keep, started)
            finally:
                with contextlib.suppress(Exception):
                    channel.close()

    def close(self) -> None:
        """Close the link (and those of its jump hosts). Jobs that were started go on."""
        with self._lock:
            connection, self._connection = self._connection, None
        while isinstance(connection, fabric.Connection):
            with contextlib.suppress(Exception):
                connection.client.close()
            connection = connection.gateway if isinstance(connection.gateway, fabric.Connection) else None

    def _transport(self) -> paramiko.Transport:
        with self._lock:
            if self._connection is None or not _alive(self._connection):
                self._connection = connect(self.target, self.name)
            transport = self._connection.transport
            assert isinstance(transport, paramiko.Transport)
            return transport

    def _channel(self) -> paramiko.Channel:
        """A fresh session. One that cannot be opened has executed nothing, so here, and only here, we try again."""
        reopened, patience = False, time.monotonic() + SESSION_PATIENCE_S
        while True:
            transport = self._transport()
            try:
                return transport.open_session(timeout=SESSION_S)
            except ChannelException as error:
                if time.monotonic() >= patience:
                    hint = "too many sessions on this link? sshd's MaxSessions limits them; nothing was executed"
                    raise HostUnreachable(f"no session: {error.text}", where=self.name, hint=hint) from error
                time.sleep(0.05)  # sshd still counts sessions that we have just closed
            except (SSHException, EOFError, OSError) as error:
                transport.close()  # half open: the far side is gone and nobody told us
                if reopened:
                    hint = "nothing was executed"
                    raise HostUnreachable(f"no session: {error}", where=self.name, hint=hint) from error
                reopened = True

    def _execute(self, channel: paramiko.Channel, text: str) -> None:
        try:
            channel.exec_command(text)
        except (SSHException, EOFError, OSError) as error:
            transport = channel.get_transport()
            if transport is not None and transport.is_active() and not isinstance(error, TimeoutError):
                raise HostUnreachable(
                    f"the server refuses to execute commands: {error}",
                    where=self.name,
                    hint="a forced command or `restrict`?",
                ) from error
            raise self._lost("before the server confirmed the command") from error

    def _follow(
        self, channel: paramiko.Channel, command: Command, sink: Sink | None, keep: int, started: float
    ) -> Completed:
        clips: dict[Stream, Clip] = {"stdout": Clip(keep), "stderr": Clip(keep)}
        deadline = started + command.timeout_s + wire.KILL_AFTER_S + GRACE_S
        status_at: float | None = None
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        while True:
            moved = _drain(channel, clips, sink)
            now = time.monotonic()
            if channel.exit_status_ready():
                status_at = status_at or now
            if (channel.eof_received or channel.closed) and not moved and (status_at or channel.closed):
                break
            if status_at and now - status_at >= LINGER_S:
                break
            if now >= deadline:
                raise self._lost(f"no answer {now - started:.0f} s after the start, so its time limit did not end it")
            if channel.eof_received:
                channel.status_event.wait(0.05)
            elif not moved:
                poll.poll(500)
        code = channel.exit_status
        if code < 0:
            raise self._lost("it ended without an exit code")
        duration = time.monotonic() - started
        late = wire.timed_out(code, duration, command.timeout_s)
        return Completed(
            124 if late else code, clips["stdout"].text(), clips["stderr"].text(), clips["stdout"].total,
            clips["stderr"].total, duration, late,
        )  # fmt: skip

    def _lost(self, why: str) -> OutcomeUnknown:
        hint = "look at the host before repeating it; reads may simply be repeated"
        return OutcomeUnknown(f"the link was lost while a command ran ({why}): it may or may not have happened",
                              where=self.name, hint=hint)  # fmt: skip


def _alive(connection: fabric.Connection) -> bool:
    transport = connection.transport
    return isinstance(transport, paramiko.Transport) and transport.is_active()


def _drain(channel: paramiko.Channel, clips: dict[Stream, Clip], sink: Sink | None) -> bool:
    """Take what has arrived on both streams (not more than a few MB: the time limit must be looked at, too)."""
    moved = False
    for _ in range(64):
        if not channel.recv_ready() and not channel.recv_stderr_ready():
            break
        moved = True
        if channel.recv_ready():
            _take("stdout", channel.recv(CHUNK), clips, sink)
        if channel.recv_stderr_ready():
            _take("stderr", channel.recv_stderr(CHUNK), clips, sink)
    return moved


def _take(stream: Stream, data: bytes, clips: dict[Stream, Clip], sink: Sink | None) -> None:
    clips[stream].add(data)
    if sink and data:
        sink(stream, data)


def _feed(channel: paramiko.Channel, data: bytes) -> None:
    with contextlib.suppress(OSError, EOFError, SSHException):  # the command ended without reading everything
        channel.sendall(data)
    with contextlib.suppress(OSError, EOFError, SSHException):
        channel.shutdown_write()
