"""HTTP between simulated processes: what a listening program answers, and how a client finds it. No sockets are involved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opsagent_lab.program import Process


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """With the query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    client: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Response:
    """`body` may be a generator: it is read by the client's thread, which sleeps while the server 'works'."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Iterable[bytes] = b""

    def chunks(self) -> Iterable[bytes]:
        return (self.body,) if isinstance(self.body, bytes) else self.body


Service = Callable[["Process", Request], Response]
"""Answers one request. Runs in the client's thread; the first argument is the *client's* process: sleep on it."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A port that somebody listens on. `service` is None for a process that accepts and says nothing."""

    host: str
    address: str
    port: int
    pid: int
    service: Service | None = None
    info: dict[str, Any] = field(default_factory=dict)


def reaches(listener: Listener, host: str, address: str, addresses: list[str]) -> bool:
    """Whether a connection to `address` from or to `host` ends at this listener (loopback is private to its host)."""
    if listener.host != host:
        return False
    if address in ("127.0.0.1", "localhost", "::1"):
        return listener.address in ("127.0.0.1", "localhost", "0.0.0.0", "::", "*")
    return listener.address in ("0.0.0.0", "::", "*", address)
