"""A hub on loopback with one small, true model; it stalls, truncates, throttles, refuses and lies on request."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

COMMIT = "c0ffee" + "0" * 34
REPO = "org/tiny"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
Kind = Literal["stall", "truncate", "corrupt", "status"]


@dataclass
class Fault:
    """What happens to the first `times` downloads of a file (or, with `name` "", to questions about the repository)."""

    kind: Kind
    name: str = ""
    times: int = 1
    status: int = 429
    headers: dict[str, str] = field(default_factory=dict)
    hits: int = 0


def shard(name: str, rows: int) -> bytes:
    """A true safetensors file with one bfloat16 tensor."""
    data = random.Random(name).randbytes(rows * 1024 * 2)
    head = json.dumps({f"{name[:11]}.weight": {"dtype": "BF16", "shape": [rows, 1024], "data_offsets": [0, len(data)]}})
    text = head.encode().ljust((len(head) + 7) // 8 * 8)
    return struct.pack("<Q", len(text)) + text + data


def model() -> dict[str, bytes]:
    files = {name: shard(name, 700) for name in SHARDS}
    index = {"metadata": {"total_size": 2 * 700 * 2048}, "weight_map": {f"{name[:11]}.weight": name for name in SHARDS}}
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 1, "hidden_size": 1024,
              "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 2048,
              "vocab_size": 700, "torch_dtype": "bfloat16", "max_position_embeddings": 4096}  # fmt: skip
    small = {"config.json": config, "model.safetensors.index.json": index}
    return files | {name: json.dumps(value).encode() for name, value in small.items()}


@dataclass
class Hub:
    """`url` is its address; `asked` counts GETs of file bodies by name; `token` is the one that it takes ('' for any)."""

    files: dict[str, bytes] = field(default_factory=model)
    faults: list[Fault] = field(default_factory=list)
    token: str = ""
    granted: bool = True
    url: str = ""
    asked: dict[str, int] = field(default_factory=dict)
    ranges: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def strike(self, name: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.name == name and fault.hits < fault.times:
                    fault.hits += 1
                    return fault
        return None

    def about(self) -> dict[str, Any]:
        rows = []
        for name, data in self.files.items():
            row: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob(data)}
            if name in SHARDS:
                row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            rows.append(row)
        return {"id": REPO, "modelId": REPO, "sha": COMMIT, "private": False, "tags": [], "siblings": rows}

    def tree(self) -> list[dict[str, Any]]:
        return [{"type": "file", "path": row["rfilename"], "size": row["size"], "oid": row["blobId"],
                 **({"lfs": {"oid": row["lfs"]["sha256"], "size": row["size"], "pointerSize": 134}} if "lfs" in row else {})}
                for row in self.about()["siblings"]]  # fmt: skip


def blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self.route(body=False)

    def do_GET(self) -> None:
        self.route(body=True)

    def route(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self.say(
                b"{}", 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, body=body
            )
        if not self.hub.granted:
            return self.say(b"{}", 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "not in the list"}, body=body)
        if path.startswith(f"/api/models/{REPO}"):
            fault = self.hub.strike("") if body else None
            if fault:
                return self.say(b"{}", fault.status, fault.headers, body=body)
            value = self.hub.tree() if "/tree/" in path else self.hub.about()
            return self.say(json.dumps(value).encode(), 200, {"Content-Type": "application/json"}, body=body)
        name = path.rpartition("/")[2]
        if path.startswith(f"/{REPO}/resolve/") and name in self.hub.files:
            return self.file(name, body=body)
        return self.say(b"{}", 404, {"X-Error-Code": "EntryNotFound"}, body=body)

    def file(self, name: str, *, body: bool) -> None:
        data = self.hub.files[name]
        tag = hashlib.sha256(data).hexdigest() if name in SHARDS else blob(data)
        headers = {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if name in SHARDS:
            headers |= {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{tag}"'}
        status, span = 200, self.headers.get("Range", "")
        fault = self.hub.strike(name) if body else None
        if fault and fault.kind == "status":
            return self.say(b"{}", fault.status, fault.headers, body=body)
        if fault and fault.kind == "corrupt":
            data = bytes(len(data) // 2) + data[len(data) // 2 :]
        if body:
            with self.hub.lock:
                self.hub.asked[name] = self.hub.asked.get(name, 0) + 1
        if span.startswith("bytes=") and body:
            first = int(span[6:].partition("-")[0])
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
            data, status = data[first:], 206
            self.hub.ranges.append(f"{name} from {first}")
        half = len(data) // 2 if fault and fault.kind in ("stall", "truncate") else len(data)
        return self.say(data, status, headers, body=body, only=half, wait=bool(fault and fault.kind == "stall"))

    def say(
        self,
        data: bytes,
        status: int,
        headers: dict[str, str],
        *,
        body: bool,
        only: int | None = None,
        wait: bool = False,
    ) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            if body:
                self.wfile.write(data[:only])
                self.wfile.flush()
        if wait:
            self.hub.over.wait(60)
        if only is not None and only < len(data):
            self.close_connection = True


@contextlib.contextmanager
def hub(*faults: Fault, change: Callable[[Hub], None] = lambda _hub: None) -> Iterator[Hub]:
    made = Hub(faults=list(faults))
    change(made)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": made}))
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        made.over.set()
        server.shutdown()
        server.server_close()
