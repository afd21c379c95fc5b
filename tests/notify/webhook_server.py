"""A webhook on loopback: it keeps what it gets, and answers as it is told."""

from __future__ import annotations

import http.server
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Hook:
    """`answers` are statuses for the next requests, in order; then 200. `hang_s` seconds pass before each answer."""

    answers: list[int] = field(default_factory=list)
    hang_s: float = 0.0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    server: http.server.ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Hook:
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                hook.paths.append(self.path)
                hook.raw.append(data)
                if self.headers.get("Content-Type") == "application/json":
                    hook.bodies.append(json.loads(data))
                time.sleep(hook.hang_s)
                self.send_response(hook.answers.pop(0) if hook.answers else 200)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.server is not None
        self.server.shutdown()
        self.server.server_close()
