"""The lab's SSH server: asyncssh on loopback in a thread, one port per host, public keys only, `exec` only.

A command line is run by the host's shell in a thread; the far side gets its bytes, then its exit status. When the link is
lost the command goes on until it writes (SIGPIPE), as under sshd.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from opsagent_lab import processes
from opsagent_lab.faults import Faults
from opsagent_lab.pipes import Pipe
from opsagent_lab.program import Process
from opsagent_lab.programs.shells import BUILTINS
from opsagent_lab.relay import Relay
from opsagent_lab.shell import run_login
from opsagent_lab.state import SimHost
from opsagent_lab.world import World

T = TypeVar("T")
MAX_SESSIONS = 10
"""sshd's default: the eleventh channel of one link is refused."""
READ_AHEAD = 1 << 20
PATIENCE_S = 0.05


@dataclass
class LabServer:
    """Serves a world. `start` returns when every host has its port."""

    world: World
    folder: Path
    """Where keys and known_hosts are written (mode 0700)."""
    hosts: list[str]
    """Names of the hosts that have an SSH server of their own."""
    faults: Faults
    after_command: Callable[[], None] = lambda: None
    """Called after each command, before its exit status leaves (the lab saves itself here)."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    relays: dict[str, Relay] = field(default_factory=dict)
    inner: dict[tuple[str, bool], tuple[str, int]] = field(default_factory=dict)
    acceptors: list[asyncssh.SSHAcceptor] = field(default_factory=list)
    thread: threading.Thread | None = None

    @property
    def identity(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def start(self) -> None:
        logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
        self.thread = threading.Thread(target=self._forever, name="lab-ssh", daemon=True)
        self.thread.start()
        self.call(self._open())

    def stop(self) -> None:
        if self.thread is None:
            return
        self.call(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()
        self.thread = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def set_up(self, host: str, up: bool) -> None:
        """A host goes up or down (from any thread)."""
        relay = self.relays.get(host)
        if relay is not None and self.thread is not None:
            self.call(relay.up() if up else _down(relay))

    def cut(self, host: str) -> None:
        """Drop a host's links now (from any thread)."""
        relay = self.relays.get(host)
        if relay is not None:
            self.loop.call_soon_threadsafe(relay.cut)

    def _forever(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def _open(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        client = _key(self.identity)
        (self.folder / "authorized_keys").write_bytes(client.export_public_key())
        lines = []
        for name in self.hosts:
            stem = name.replace("/", "_")
            good, other = _key(self.folder / f"host_{stem}"), asyncssh.generate_private_key("ssh-ed25519")
            for changed, key in ((False, good), (True, other)):
                acceptor = await asyncssh.create_server(
                    self._session_factory(name),
                    "127.0.0.1",
                    0,
                    server_host_keys=[key],
                    encoding=None,
                    allow_scp=False,
                    compression_algs=None,
                    line_editor=False,
                    keepalive_interval=0,
                )
                self.acceptors.append(acceptor)
                self.inner[name, changed] = ("127.0.0.1", acceptor.get_port())
            relay = Relay(name, self.faults, self._inner_of(name))
            port = await relay.open()
            if not self.world.host(name).on:
                relay.down()
            self.relays[name] = relay
            public = good.export_public_key().decode().strip()
            lines.append(f"[127.0.0.1]:{port} {' '.join(public.split()[:2])}\n")
        self.known_hosts.write_text("".join(lines))

    def _inner_of(self, name: str) -> Callable[[bool], tuple[str, int]]:
        return lambda changed: self.inner[name, changed]

    async def _close(self) -> None:
        for relay in self.relays.values():
            relay.close()
        for acceptor in self.acceptors:
            acceptor.close()
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.sleep(0)

    def _session_factory(self, name: str) -> Callable[[], asyncssh.SSHServer]:
        return lambda: _Account(self, name)


async def _down(relay: Relay) -> None:
    relay.down()


def _key(path: Path) -> asyncssh.SSHKey:
    """The private key at `path`, made on first use."""
    if path.exists():
        return asyncssh.read_private_key(str(path))
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key("openssh"))
    return key


class _Account(asyncssh.SSHServer):
    """Who may log in: the lab's own key, unless a fault says no. At most MAX_SESSIONS channels at once."""

    def __init__(self, server: LabServer, name: str) -> None:
        self.server, self.name = server, name
        self.sessions = 0
        self.refused = False

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.conn = conn
        self.refused = self.server.faults.active("refuse-auth", self.name)

    def session_requested(self) -> Any:
        """One channel: refused as sshd does when the link has too many."""
        if self.sessions >= MAX_SESSIONS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "Connect failed")
        self.sessions += 1
        channel = self.conn.create_server_channel(encoding=None)
        session: asyncssh.SSHServerProcess[bytes] = asyncssh.SSHServerProcess(self._accept, None, 3, False)
        return channel, session

    def _accept(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        _Command(self.server, self.server.world.host(self.name), channel, self).begin()

    def begin_auth(self, username: str) -> bool:
        if not self.refused:
            self.conn.set_authorized_keys(str(self.server.folder / "authorized_keys"))
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return False

    def kbdint_auth_supported(self) -> bool:
        return False

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return False  # the authorized keys decide


class _Command:
    """One exec request: its thread, its streams, its end."""

    def __init__(
        self, server: LabServer, host: SimHost, channel: asyncssh.SSHServerProcess[bytes], account: _Account
    ) -> None:
        self.server, self.host, self.channel, self.account = server, host, channel, account
        self.stdin = Pipe(limit=READ_AHEAD)
        self.gone = False

    def begin(self) -> None:
        text = self.channel.command
        if text is None or self.channel.subsystem or self.channel.get_terminal_type():
            self.channel.stderr.write(b"This host takes commands only.\n")
            self.account.sessions -= 1
            self.channel.exit(1)
            return
        when = self.server.faults.command(self.host.name, text)
        if when == "before":
            self.server.cut(self.host.name)
            return
        reader = asyncio.ensure_future(self._read())
        thread = threading.Thread(target=self._run, args=(text, when, reader), daemon=True)
        thread.start()
        if when == "during":
            self.server.cut(self.host.name)

    async def _read(self) -> None:
        with contextlib.suppress(Exception):
            while data := await self.channel.stdin.read(1 << 16):
                while self.stdin.feed(data) > READ_AHEAD:
                    data = b""
                    await asyncio.sleep(0.01)
        self.stdin.end()
        if self.channel.is_closing():
            self.gone = True

    def _run(self, text: str, when: str | None, reader: asyncio.Future[None]) -> None:
        world = self.server.world
        env = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "LANG": "C"}
        env |= {"PATH": processes.DEFAULT_PATH, "PWD": "/root", "SSH_CONNECTION": "127.0.0.1 50000 127.0.0.1 22"}
        session = f"/user.slice/user-0.slice/session-{world.random.randrange(10, 999)}.scope"
        sim = processes.add(
            world, self.host, ["bash", "-c", text], ppid=1, env=env, cgroup=session, memo={"login": True}
        )
        process = Process(world, self.host, sim, ["bash", "-c", text], env, self.stdin, self._out, self._err)
        process.gone = lambda: self.gone
        world.running[(self.host.name, sim.pid)] = process
        try:
            code = run_login(process, text, BUILTINS)
        except BrokenPipeError:
            code = 141
        finally:
            processes.end(world, self.host, sim.pid)
        for port in self.server.faults.ending(self.host.name, text):
            for one in [x for x in list(world.listeners) if x.host == self.host.name and x.port == port]:
                world.end_process(self.host, one.pid)
        self.server.after_command()
        if when == "after":
            self.server.cut(self.host.name)
            return
        if world.closing or self.server.thread is None:
            return
        with contextlib.suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(self._finish(code, reader), self.server.loop)

    async def _finish(self, code: int, reader: asyncio.Future[None]) -> None:
        """Send the exit status. Commands of the lab are over in less than a millisecond: a client that is still about to say
        that its stdin has ended would say so of a closed channel, which costs it the whole link (with sshd, too)."""
        await asyncio.wait([reader], timeout=PATIENCE_S)
        reader.cancel()
        self.account.sessions -= 1
        with contextlib.suppress(Exception):
            self.channel.exit(code)

    def _out(self, data: bytes) -> None:
        self._write(data, self.channel.stdout)

    def _err(self, data: bytes) -> None:
        self._write(data, self.channel.stderr)

    def _write(self, data: bytes, stream: asyncssh.SSHWriter[bytes]) -> None:
        async def send() -> None:
            stream.write(data)
            await stream.drain()

        if self.gone or self.server.world.closing:
            raise BrokenPipeError
        try:
            asyncio.run_coroutine_threadsafe(send(), self.server.loop).result(60)
        except Exception as problem:
            self.gone = True
            raise BrokenPipeError from problem
