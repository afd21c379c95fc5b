"""A launched server at work: who is running, who waits, how long things take, and what it writes into its log."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from opsagent_lab.engine.answers import count_tokens
from opsagent_lab.engine.launch import Launch, Limits

_BANDWIDTH = {8: 700e9, 9: 3300e9, 10: 6000e9, 12: 1300e9}
"""Bytes per second that a card of a compute capability reads its weights with, by its major version."""


@dataclass
class Server:
    """One serving process. Thread-safe: every client asks in its own thread."""

    launch: Launch
    limits: Limits
    log: Callable[[str], None]
    """Writes one stamped line (text, after the time)."""
    now: Callable[[], float]
    first_answer_s: float = 0.0
    """How long the first answer of a real client is delayed (kernels for new shapes are compiled)."""
    stuck: bool = False
    """The scheduler is gone or hangs: requests never end, /health says 503."""
    draining: bool = False
    ready: bool = False
    running: int = 0
    queue: list[int] = field(default_factory=list)
    served: int = 0
    generated: int = 0
    prompts: int = 0
    seen: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    counter: int = 0
    last_rate: float = 0.0
    used_tokens: int = 0
    cold: bool = True

    # -- speed

    @property
    def accept_length(self) -> float:
        """Tokens per step with speculation: 1.0 means that no draft is ever accepted."""
        s = self.launch.settings
        if not s.spec or self.limits.garbage in ("repeat", "nan"):
            return 1.0
        return round(1 + s.spec_steps * 0.72 * 0.93 ** (s.spec_steps - 1), 2)

    @property
    def tokens_per_second(self) -> float:
        """Decode speed of one request."""
        sm = self.launch.gpus[0].sm
        steps = _BANDWIDTH.get(sm // 10, 700e9) * 0.75 / max(1, self.limits.weights)
        return steps * self.accept_length * (1.0 if self.launch.settings.graphs else 0.6)

    def prefill_seconds(self, tokens: int) -> float:
        return tokens / (1800 if self.launch.gpus[0].sm < 90 else 9000) * max(1.0, self.limits.weights / 25e9)

    # -- one request through the scheduler

    def enter(self, prompt_tokens: int, sleep: Callable[[float], None]) -> None:
        """Wait until one of the running requests' places is free, in order of arrival."""
        with self.lock:
            self.counter += 1
            ticket = self.counter
            self.queue.append(ticket)
        try:
            while True:
                with self.lock:
                    if not self.stuck and self.queue[0] == ticket and self.running < max(1, self.limits.requests):
                        self.queue.pop(0)
                        self.running += 1
                        self.used_tokens += prompt_tokens
                        waiting, beside = len(self.queue), self.running - 1
                        break
                sleep(0.2)
        except BaseException:
            with self.lock:
                if ticket in self.queue:
                    self.queue.remove(ticket)
            raise
        self._prefill_line(prompt_tokens, beside, waiting)

    def leave(self, prompt_tokens: int, new_tokens: int) -> None:
        with self.lock:
            self.running -= 1
            self.served += 1
            self.generated += new_tokens
            self.prompts += prompt_tokens
            self.used_tokens = max(0, self.used_tokens - prompt_tokens)

    def warm(self, sleep: Callable[[float], None]) -> None:
        """The first answer of a real client compiles what the warm-up did not."""
        with self.lock:
            cold, self.cold = self.cold, False
        if cold and self.first_answer_s:
            sleep(self.first_answer_s)

    # -- log lines

    def _usage(self) -> str:
        share = min(1.0, self.used_tokens / max(1, self.limits.tokens))
        if self.limits.slots is None:
            return f"token usage: {share:.2f}"
        slots = min(1.0, max(1, self.running) * 3 / max(1, self.limits.slots))
        return f"full token usage: {share:.2f}, mamba usage: {slots:.2f}"

    def _prefill_line(self, tokens: int, beside: int, waiting: int) -> None:
        s = self.launch.settings
        left = tokens
        while left > 0:
            part = min(left, s.chunked) if s.chunked > 0 else left
            self.log_rank0(
                f"Prefill batch, #new-seq: 1, #new-token: {part}, #cached-token: 0, {self._usage()}, "
                f"#running-req: {beside}, #queue-req: {waiting}, #pending-token: {left - part}, "
                f"cuda graph: {s.piecewise}, input throughput (token/s): {tokens / (0.1 + self.prefill_seconds(tokens)):.2f}"
            )
            left -= part

    def decode_line(self) -> None:
        s = self.launch.settings
        spec = ""
        if s.spec:
            rate = (self.accept_length - 1) / max(1, s.spec_tokens - 1)
            spec = f"accept len: {self.accept_length:.2f}, accept rate: {rate:.2f}, "
        self.last_rate = self.tokens_per_second * max(1, self.running)
        share = self._usage()
        if self.limits.slots is None:
            head = f"#token: {self.used_tokens}, {share}"
        else:
            full, _, mamba = share.partition(", mamba usage")
            head = f"#full token: {self.used_tokens}, {full}, mamba num: {3 * max(1, self.running)}, mamba usage{mamba}"
        self.log_rank0(
            f"Decode batch, #running-req: {self.running}, {head}, {spec}cuda graph: {s.graphs}, "
            f"gen throughput (token/s): {self.last_rate:.2f}, #queue-req: {len(self.queue)}"
        )

    def log_rank0(self, text: str) -> None:
        self.log((" TP0" if self.launch.settings.tp > 1 else "") + "\0" + text)

    def access(self, client: str, method: str, path: str, status: int) -> None:
        words = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}
        words |= {500: "Internal Server Error", 503: "Service Unavailable", 415: "Unsupported Media Type"}
        port = random.randrange(32000, 60000)
        self.log(f'\0INFO:     {client}:{port} - "{method} {path} HTTP/1.1" {status} {words.get(status, "")}')


def prompt_tokens(texts: list[str]) -> int:
    """Tokens of a rendered chat: the texts and the template's own marks."""
    return sum(count_tokens(t) + 5 for t in texts) + 3
