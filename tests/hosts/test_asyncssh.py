"""Against an in-process SSH server that misbehaves on purpose: what no real sshd can be made to do at the right moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from opsagent_tools.errors import AuthFailed, HostUnreachable, OutcomeUnknown
from opsagent_tools.host import argv
from opsagent_tools.hosts.connect import SshTarget
from opsagent_tools.hosts.ssh import SshHost

Behaviour = Callable[["Server", asyncssh.SSHServerProcess[bytes]], Coroutine[Any, Any, None]]


@dataclass
class Server:
    """Runs `behave` for every command and counts them."""

    folder: Path
    behave: Behaviour
    port: int = 0
    commands: list[str] = field(default_factory=list)
    connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)
    hang_up: bool = True
    password: str = ""
    tried: list[str] = field(default_factory=list)

    @property
    def target(self) -> SshTarget:
        return SshTarget(
            "127.0.0.1", "root", self.port, str(self.folder / "key"), None, str(self.folder / "known"), ssh_config="none",
            connect_timeout_s=5.0,
        )  # fmt: skip


class _Auth(asyncssh.SSHServer):
    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._server.connections.append(conn)

    def begin_auth(self, username: str) -> bool:
        return bool(self._server.password)

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        self._server.tried.append(password)
        return password == self._server.password


@contextmanager
def serving(folder: Path, behave: Behaviour) -> Iterator[Server]:
    server, ready, loop = Server(folder, behave), threading.Event(), asyncio.new_event_loop()
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(folder / "key"))
    stop = asyncio.Event()

    async def handle(process: asyncssh.SSHServerProcess[bytes]) -> None:
        server.commands.append(process.command or "")
        await server.behave(server, process)

    async def main() -> None:
        listener = await asyncssh.create_server(
            lambda: _Auth(server), "127.0.0.1", 0, server_host_keys=[key], process_factory=handle, encoding=None
        )
        server.port = listener.get_port()
        public = key.export_public_key().decode().split()
        (folder / "known").write_text(f"[127.0.0.1]:{server.port} {public[0]} {public[1]}\n")
        ready.set()
        await stop.wait()
        listener.close()
        for connection in server.connections if server.hang_up else ():
            connection.abort()
        await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


async def answers(server: Server, process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.stdout.write(b"fine\n")
    process.exit(0)


async def drops(server: Server, process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.stdout.write(b"half of it")
    await process.stdout.drain()
    server.connections[-1].abort()


async def dies_by_signal(server: Server, process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.exit_with_signal("KILL")


async def closes_without_a_code(server: Server, process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.close()


async def floods_both(server: Server, process: asyncssh.SSHServerProcess[bytes]) -> None:
    for _ in range(40):
        process.stdout.write(b"o" * 65536)
        process.stderr.write(b"e" * 65536)
        await process.stdout.drain()
        await process.stderr.drain()
    process.exit(5)


async def never_ends(server: Server, process: asyncssh.SSHServerProcess[bytes]) -> None:
    await asyncio.sleep(3600)


def test_what_is_sent(tmp_path: Path) -> None:
    with serving(tmp_path, answers) as server:
        host = SshHost("box", server.target)
        assert argv(host, "echo", "it's", timeout_s=7).stdout == "fine\n"
        assert server.commands == [
            "LC_ALL=C PAGER=cat DEBIAN_FRONTEND=noninteractive timeout -k 2 7 echo 'it'\"'\"'s'; exit $?"
        ]
        host.close()


def test_right_and_wrong_password(tmp_path: Path) -> None:
    with serving(tmp_path, answers) as server:
        server.password = "hunter2"
        right = SshHost("box", replace(server.target, identity="", password="hunter2"))
        assert argv(right, "true").ok
        right.close()
        with pytest.raises(AuthFailed) as caught:
            argv(SshHost("box", replace(server.target, identity="", password="guess")), "true")
        assert (server.tried, caught.value.exit_code) == (["hunter2", "guess"], 2)
        assert "guess" not in f"{caught.value.what}{caught.value.hint}"
        assert len(server.commands) == 1


@pytest.mark.parametrize("behave", [drops, dies_by_signal, closes_without_a_code])
def test_no_exit_code_is_an_unknown_outcome_and_nothing_is_repeated(tmp_path: Path, behave: Behaviour) -> None:
    with serving(tmp_path, behave) as server:
        host = SshHost("box", server.target)
        with pytest.raises(OutcomeUnknown):
            argv(host, "systemctl", "restart", "x")
        assert len(server.commands) == 1
        assert len(server.connections) == 1
        server.behave = answers
        assert argv(host, "true").stdout == "fine\n"
        host.close()


def test_both_streams_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, floods_both) as server:
        host = SshHost("box", server.target)
        done = argv(host, "x", keep=100)
        assert (done.exit_code, done.stdout_bytes, done.stderr_bytes) == (5, 40 * 65536, 40 * 65536)
        host.close()


def test_far_side_without_a_working_limit_is_not_waited_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opsagent_tools.hosts.ssh.GRACE_S", 0.1)
    with serving(tmp_path, never_ends) as server:
        host = SshHost("box", server.target)
        with pytest.raises(OutcomeUnknown):
            argv(host, "x", timeout_s=0.2)
        assert len(server.commands) == 1
        host.close()


@pytest.mark.parametrize("hang_up", [True, False])
def test_server_that_goes_away_between_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hang_up: bool
) -> None:
    monkeypatch.setattr("opsagent_tools.hosts.ssh.SESSION_S", 0.3)
    with serving(tmp_path, answers) as server:
        server.hang_up = hang_up  # without it the link stays half open: no packet says that the server is gone
        host = SshHost("box", server.target)
        assert argv(host, "true").ok
    with pytest.raises(HostUnreachable):
        argv(host, "true")
    host.close()
