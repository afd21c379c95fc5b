"""The call that is being made, as its tool tells it: the phase, how far it is, how fast, how long it has taken and will.

Times are seconds of the run's clock.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent.transcript import one_line
from opsagent_tools.tool import Progress

MOST = 600
"""Characters of one text of others that are kept."""
WINDOW_S = 60.0
"""A rate is that of the last minute: a stall shows, and one slow block does not."""
FOLLOWS = ("launch_sglang", "tail_log")
"""Tools that follow a server's log and tell `phase: line`; the line has a row of its own."""
STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? ?([^\]]*)\]\s*")
"""SGLang begins its log lines with `[date time rank] `."""
OWN_RATE = re.compile(r", \d+ [KMG]iB/s$")
"""The rate since the beginning, which a tool may say; ours is that of the last minute."""


def words(value: object, most: int = MOST) -> str:
    """A value of others on one line, inert and clipped."""
    return one_line(str(value), most)


@dataclass(slots=True)
class Work:
    """One call under way. `done` and `total` are set while there is a bar to draw."""

    id: str
    tool: str
    host: str
    tier: str
    brief: str
    """The argument that says most."""
    what: str
    """The call in two or three words: its program, or the tool, and the host."""
    began: float
    expected_s: float | None = None
    """What such a call took on this host before."""
    text: str = ""
    label: str = ""
    """The first of the tool's words, which names the phase."""
    label_began: float = 0.0
    label_expected_s: float | None = None
    done: float | None = None
    total: float | None = None
    unit: str = ""
    samples: deque[tuple[float, float]] = field(default_factory=deque)
    """(time, done) of the last minute."""
    grew: float = 0.0
    """When `done` grew last."""

    @classmethod
    def of(cls, call: Mapping[str, Any], tier: str, now: float, expected_s: float | None = None) -> Work:
        """From a call as its intent says it."""
        tool, host = words(call["tool"], 40), words(call["host"], 60)
        argv = call["args"].get("argv") or [""]
        program = words(argv[0], 80).rpartition("/")[2] if tool in ("ssh_exec", "run_job") else ""
        what = f"{program or tool} on {host}" if host else program or tool
        return cls(call["id"], tool, host, tier, brief(call), what, now, expected_s, label_began=now, grew=now)

    def start(self, now: float) -> None:
        self.began = self.label_began = self.grew = now

    def tell(self, told: Progress, now: float) -> str:
        """Take in what the tool says of itself; returns the line of a server's log in it ('' if there is none)."""
        text = words(told.text, 300)
        _phase, _, rest = text.partition(": ")
        label = text.split(" ")[0]
        bounded = told.done is not None and bool(told.total) and told.unit != "s"  # seconds are patience, not a goal
        same = (told.total, told.unit) == (self.total, self.unit) if bounded else label == self.label and not self.total
        back = bool(self.samples) and told.done is not None and told.done < self.samples[-1][1]
        if not same or back:
            self.label_began = self.grew = now
            self.samples.clear()
        self.label, self.label_expected_s = label, told.expected_s
        self.text = rest if self.tool == "run_job" else OWN_RATE.sub("", text)
        self.done, self.total, self.unit = (told.done, told.total, told.unit) if bounded else (None, None, "")
        if self.done is not None:
            self._sample(self.done, now)
        if self.tool not in FOLLOWS or label == "preflight:" or rest == "no output yet":
            return ""
        return STAMP.sub(lambda found: f"[{found[1]}] " if found[1] else "", rest)

    def _sample(self, done: float, now: float) -> None:
        if not self.samples or done > self.samples[-1][1]:
            self.grew = now
        self.samples.append((now, done))
        while len(self.samples) > 2 and now - self.samples[0][0] > WINDOW_S:
            self.samples.popleft()

    def rate(self, now: float) -> float | None:
        """Units a second over the last minute; None while it cannot be said."""
        if len(self.samples) < 2:
            return None
        (first, least), (_last, most) = self.samples[0], self.samples[-1]
        return max(0.0, most - least) / (now - first) if now - first >= 1.0 else None

    def left_s(self, now: float) -> float | None:
        """Seconds until `done` is `total` at this rate; None when there is none."""
        rate = self.rate(now)
        if not rate or self.done is None or self.total is None:
            return None
        return max(0.0, self.total - self.done) / rate


def brief(call: Mapping[str, Any]) -> str:
    """The argument that says most, on one line."""
    args = call["args"]
    for key in ("argv", "path", "question", "unit", "repo", "venv", "flags"):
        value = args.get(key)
        if value:
            return words(" ".join(str(word) for word in value) if isinstance(value, list) else value, 160)
    return ""
