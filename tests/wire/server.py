"""A loopback HTTP server that sends exact bytes: status, headers, frames, silences, cuts; one answer per request."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What one request gets. `pieces`: bytes to send, or seconds to be silent. `cut`: reset the connection at the end."""

    pieces: tuple[bytes | float, ...]
    cut: bool = False


def http(
    status: int, body: str | bytes, *, kind: str = "application/json", headers: dict[str, str] | None = None
) -> Answer:
    """A whole response with its length."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return Answer(("\r\n".join(lines).encode() + b"\r\n\r\n" + data,))


def fault(status: int, message: str = "no", **headers: str) -> Answer:
    """An error in the usual shape."""
    body = json.dumps({"error": {"message": message, "type": "x"}})
    return http(status, body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def completion(message: dict[str, Any] | None = None, finish: str | None = "stop", **more: Any) -> Answer:
    """A whole completion."""
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    choice = {"index": 0, "message": {"role": "assistant", **(message or {"content": "ok"})}, "finish_reason": finish}
    return http(200, json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage, **more}))


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}


def frame(value: Any) -> bytes:
    """One server-sent event."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"data: {text}\n\n".encode()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk."""
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }


def call(
    arguments: Any = None, *, name: str | None = None, id: str | None = None, index: int | None = None
) -> dict[str, Any]:
    """One entry of a delta's `tool_calls`, with only the keys that are given."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    entry: dict[str, Any] = {"function": function, "type": "function"}
    return entry | {key: value for key, value in (("id", id), ("index", index)) if value is not None}


def stream(*frames: Any, done: bool = True, cut: bool = False) -> Answer:
    """A stream of frames (dicts, raw texts) and silences (floats)."""
    pieces: list[bytes | float] = [HEAD]
    pieces += [item if isinstance(item, float) else frame(item) for item in frames]
    return Answer((*pieces, *((frame("[DONE]"),) if done else ())), cut)


def says(text: str = "ok", finish: str = "stop") -> Answer:
    """A good streamed answer."""
    return stream(delta(role="assistant", content=text), delta(finish), USAGE)


@dataclass
class WireServer:
    """Serves its script on loopback. `requests` are the bodies it got, `hits` how many answers were sent."""

    script: Sequence[Answer]
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    hits: int = 0

    def __enter__(self) -> WireServer:
        self._socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            if connection.recv(4, socket.MSG_PEEK) != b"POST":
                return  # TLS against a plain port, or a connection that closed
            reader = connection.makefile("rb")
            head = b""
            while (line := reader.readline()).strip():
                head += line
            length = next(
                int(row.split(b":")[1]) for row in head.splitlines() if row.lower().startswith(b"content-length")
            )
            self.headers.append(head.decode())
            self.requests.append(json.loads(reader.read(length)))
            number = len(self.requests)
            answer = self.script[number - 1] if number <= len(self.script) else fault(418, "not in the script")
            try:
                for piece in answer.pieces:
                    time.sleep(piece) if isinstance(piece, float) else connection.sendall(piece)
            except OSError:
                pass  # the client hung up: that is what some tests are about
            self.hits += 1
            if answer.cut:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
