"""What can go wrong on the wire: dropped links, refused log-ins, changed host keys, slow or silent servers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["drop", "refuse", "silent", "refuse-auth", "host-key", "slow", "end"]
When = Literal["before", "during", "after"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one host.

    `drop` cuts the link: around command number `command` (1 is the first one since the fault was armed; `before` it ran,
    `during` it, `after` it ran but before its exit status left), or after `byte` more raw bytes of the `direction`.
    `refuse` answers no connection, `silent` accepts and says nothing, `refuse-auth` takes no key, `host-key` shows another
    key, `slow` carries `rate` bytes per real second with `delay_s` on top of each piece, `end` ends whoever listens on
    `port` as soon as a matching command has run.
    """

    kind: Kind
    host: str
    command: int = 0
    when: When = "during"
    byte: int = 0
    direction: Literal["up", "down", "both"] = "both"
    rate: float = 0.0
    delay_s: float = 0.0
    times: int = 1
    """How often it strikes; 0 means always."""
    port: int = 0
    match: str = ""
    """Only commands whose text contains this count."""


@dataclass
class _Armed:
    fault: Fault
    seen: int = 0
    struck: int = 0

    @property
    def live(self) -> bool:
        return self.fault.times == 0 or self.struck < self.fault.times


@dataclass
class Faults:
    """The faults that are armed, and how often each struck. Thread-safe."""

    armed: list[_Armed] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> None:
        with self.lock:
            self.armed.append(_Armed(fault))

    def clear(self) -> None:
        with self.lock:
            self.armed.clear()

    @property
    def struck(self) -> int:
        """How often faults happened: a test asserts that its fault really did."""
        with self.lock:
            return sum(item.struck for item in self.armed)

    def active(self, kind: Kind, host: str) -> bool:
        """Whether a connection-time fault applies now (and count it)."""
        with self.lock:
            for item in self.armed:
                if item.fault.kind == kind and item.fault.host == host and item.live:
                    item.struck += 1
                    return True
        return False

    def slow(self, host: str) -> Fault | None:
        with self.lock:
            return next((i.fault for i in self.armed if i.fault.kind == "slow" and i.fault.host == host), None)

    def command(self, host: str, text: str) -> When | None:
        """Count a command; says when the link must drop around it."""
        with self.lock:
            for item in self.armed:
                fault = item.fault
                if fault.kind != "drop" or fault.host != host or fault.byte or not item.live or fault.match not in text:
                    continue
                item.seen += 1
                if item.seen >= max(1, fault.command):
                    item.struck += 1
                    item.seen = 0
                    return fault.when
        return None

    def ending(self, host: str, text: str) -> list[int]:
        """Ports whose listeners end now that this command has run."""
        found = []
        with self.lock:
            for item in self.armed:
                fault = item.fault
                if fault.kind == "end" and fault.host == host and item.live and fault.match in text:
                    item.struck += 1
                    found.append(fault.port)
        return found

    def allowance(self, host: str, direction: Literal["up", "down"], count: int) -> int:
        """How many of `count` raw bytes may pass; fewer means: pass them, then cut the link."""
        with self.lock:
            for item in self.armed:
                fault = item.fault
                wrong_way = fault.direction not in ("both", direction)
                if fault.kind != "drop" or fault.host != host or not fault.byte or not item.live or wrong_way:
                    continue
                if item.seen + count >= fault.byte:
                    allowed = max(0, fault.byte - item.seen)
                    item.struck += 1
                    item.seen = 0
                    return allowed
                item.seen += count
        return count
