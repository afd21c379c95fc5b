"""Who listens where, and small HTTP requests from the host itself."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from opsagent_tools import probes
from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host, argv


class Listener(BaseModel):
    """A listening TCP socket. `pid` is null when it belongs to someone whom we may not see (another container, not root)."""

    address: str
    port: int
    pid: int | None = None
    process: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; `status` 0 when there was none, and then `body` says why."""

    status: int
    body: str

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return None


def listeners(host: Host, port: int | None = None) -> list[Listener]:
    """Listening TCP sockets, of one port or of all, by `ss` or else from /proc. Raises ToolFailed if neither works."""
    done = argv(host, "ss", "-ltnp", timeout_s=30)
    if done.ok:
        found = parse_ss(done.stdout)
    elif done.exit_code in (126, 127):
        found = [Listener(**one) for one in probes.ask(host, "net", {"op": "listen"})["listeners"]]
    else:
        raise ToolFailed(f"ss: {done.stderr.strip()[:200]}", where=host.name)
    return [one for one in found if port is None or one.port == port]


def parse_ss(text: str) -> list[Listener]:
    """Lines of `ss -ltnp`: `LISTEN 0 5 127.0.0.1:19099 0.0.0.0:* users:(("python3",pid=30477,fd=3))`."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 4 or words[0] != "LISTEN":
            continue
        address, _, port = words[3].rpartition(":")
        user = re.search(r'\("([^"]*)",pid=(\d+)', line)
        if re.fullmatch(r"[0-9]{1,5}", port):
            address = address.strip("[]").split("%")[0]
            found.append(Listener(address=address, port=int(port), pid=int(user[2]) if user else None,
                                  process=user[1] if user else ""))  # fmt: skip
    return found


def get(host: Host, url: str, *, api_key: str = "", timeout_s: float = 20.0) -> Answer:
    """GET a URL from the host with curl (or Python where there is none). A key travels by stdin, never in an argv."""
    config = f'header = "Authorization: Bearer {api_key}"\n' if api_key else None
    words = ["curl", "-sS", "-m", f"{timeout_s:g}", "-w", "\n%{http_code}", *(("--config", "-") if config else ()), url]
    done = argv(host, *words, stdin=config, timeout_s=timeout_s + 5, keep=1 << 20)
    if done.exit_code in (126, 127):
        got = probes.ask(
            host, "net", {"op": "get", "url": url, "timeout": timeout_s}, stdin=api_key, timeout_s=timeout_s + 10
        )
        return Answer(int(got["status"]), str(got["body"]))
    body, _, code = done.stdout.rpartition("\n")
    if not done.ok or not code.strip().isdigit():
        return Answer(0, done.stderr.strip()[:300] or f"curl: exit {done.exit_code}")
    return Answer(int(code), body)


def address_of(host: Host) -> str:
    """Where others reach this host: its configured address, else the first that it names itself, else 127.0.0.1."""
    target = getattr(host, "target", None)
    if target is not None and re.fullmatch(r"[0-9.]+|.*\..*", str(target.address)):
        return str(target.address)
    done = argv(host, "hostname", "-I", timeout_s=10)
    words = done.stdout.split() if done.ok else []
    return words[0] if words else "127.0.0.1"
