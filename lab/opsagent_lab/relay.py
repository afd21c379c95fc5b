"""The port of a simulated host: passes bytes to the SSH server behind it, so that a link can be cut at any byte.

A host that is down refuses connections as a real one does: its port stays bound (SO_REUSEPORT keeps it ours), nobody
listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from opsagent_lab.faults import Faults

PIECE = 1 << 15


def _socket(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


@dataclass
class Relay:
    """One host's port. All methods run in the event loop."""

    host: str
    faults: Faults
    inner: Callable[[bool], tuple[str, int]]
    """Address of the SSH server behind; the argument asks for the one with another host key."""
    port: int = 0
    reserved: socket.socket | None = None
    server: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> int:
        """Reserve a port and listen; returns the port."""
        self.reserved = _socket(self.port)
        self.port = int(self.reserved.getsockname()[1])
        await self.up()
        return self.port

    async def up(self) -> None:
        if self.server is None:
            self.server = await asyncio.start_server(self._accepted, sock=_socket(self.port))

    def down(self) -> None:
        """The host goes away: links end, new ones are refused."""
        if self.server is not None:
            self.server.close()
            self.server = None
        self.cut()

    def cut(self) -> None:
        """Drop every open link without a word."""
        for writer in list(self.writers):
            _abort(writer)

    def close(self) -> None:
        self.down()
        for task in list(self.tasks):
            task.cancel()
        if self.reserved is not None:
            self.reserved.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self.tasks.add(task)
        self.writers.add(writer)
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the lab closes
                await self._carry(reader, writer)
        finally:
            self.writers.discard(writer)
            _abort(writer)
            if task is not None:
                self.tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.faults.active("refuse", self.host):
            return
        if self.faults.active("silent", self.host):
            await reader.read()
            return
        address, port = self.inner(self.faults.active("host-key", self.host))
        try:
            far_reader, far_writer = await asyncio.open_connection(address, port)
        except OSError:
            return
        for end in (writer, far_writer):
            sock = end.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writers.add(far_writer)
        both = [
            asyncio.ensure_future(self._pump(reader, far_writer, "up")),
            asyncio.ensure_future(self._pump(far_reader, writer, "down")),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            self.writers.discard(far_writer)
            _abort(far_writer)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Literal["up", "down"]
    ) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await reader.read(PIECE):
                allowed = self.faults.allowance(self.host, way, len(data))
                writer.write(data[:allowed])
                await writer.drain()
                if allowed < len(data):
                    return
                slow = self.faults.slow(self.host)
                if slow is not None:
                    await asyncio.sleep(slow.delay_s + (len(data) / slow.rate if slow.rate else 0.0))
            await writer.drain()


def _abort(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(Exception):
        writer.transport.abort()
