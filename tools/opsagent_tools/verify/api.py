"""The HTTP API of a server, asked with curl on its host: argv only, bodies and keys travel by stdin."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from opsagent_tools.host import Host, argv

STATUS_MARK = "\n%{http_code} %{time_starttransfer} %{time_total}"


@dataclass(frozen=True, slots=True)
class Reply:
    """`status` 0: there was no HTTP answer, and `body` says why. Times in seconds, as curl measured them."""

    status: int
    body: str
    first_byte_s: float = 0.0
    total_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def json(self) -> Any:
        """The body as JSON, or None."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def words(self) -> str:
        """What the server said about a refusal, in one line."""
        value = self.json
        if isinstance(value, dict):
            inner = value.get("error") if isinstance(value.get("error"), dict) else value
            for key in ("message", "detail", "error"):
                if isinstance(inner, dict) and isinstance(inner.get(key), str):
                    return str(inner[key])[:400]
        return " ".join(self.body.split())[:400]


@dataclass(frozen=True, slots=True)
class Api:
    """`base` is the URL without /v1, as seen from the host itself."""

    host: Host
    base: str
    api_key: str = ""

    def get(self, path: str, *, timeout_s: float = 30.0) -> Reply:
        config = self._header() if self.api_key else None
        words = [*self._words(timeout_s), *(("--config", "-") if config else ()), self.base + path]
        return self._ask(words, config, timeout_s)

    def post(self, path: str, body: dict[str, Any], *, timeout_s: float = 300.0) -> Reply:
        """POST JSON. A streamed answer comes back whole in `body`; its first byte is timed."""
        text = json.dumps(body, ensure_ascii=True)
        words = [*self._words(timeout_s), "-H", "Content-Type: application/json"]
        if body.get("stream"):
            words.append("-N")
        if self.api_key:
            # One stdin for two secrets-to-be: a config file may hold the header and the body.
            quoted = text.replace("\\", "\\\\").replace('"', '\\"')
            stdin = f'{self._header()}data-binary = "{quoted}"\n'
            words += ["--config", "-"]
        else:
            stdin = text
            words += ["--data-binary", "@-"]
        return self._ask([*words, self.base + path], stdin, timeout_s)

    def chat(self, *, timeout_s: float = 300.0, **body: Any) -> Reply:
        return self.post("/v1/chat/completions", body, timeout_s=timeout_s)

    def _header(self) -> str:
        return f'header = "Authorization: Bearer {self.api_key}"\n'

    def _words(self, timeout_s: float) -> list[str]:
        return ["curl", "-sS", "--noproxy", "*", "-m", f"{timeout_s:g}", "-w", STATUS_MARK]

    def _ask(self, words: list[str], stdin: str | None, timeout_s: float) -> Reply:
        done = argv(self.host, *words, stdin=stdin, timeout_s=timeout_s + 10, keep=4 << 20)
        body, _, tail = done.stdout.rpartition("\n")
        numbers = tail.split()
        if len(numbers) != 3 or not numbers[0].isdigit() or int(numbers[0]) == 0:
            return Reply(0, done.stderr.strip()[:300] or f"curl ended with {done.exit_code}")
        if not done.ok and done.exit_code != 22:
            return Reply(
                0,
                done.stderr.strip()[:300] or f"curl ended with {done.exit_code}",
                float(numbers[1]),
                float(numbers[2]),
            )
        return Reply(int(numbers[0]), body, _seconds(numbers[1]), _seconds(numbers[2]))


def _seconds(text: str) -> float:
    try:
        return round(float(text.replace(",", ".")), 3)
    except ValueError:
        return 0.0
