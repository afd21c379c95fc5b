"""The head of a log line: time, rank and level, under whatever wrapped it (compose, journald, kubectl, ray, loguru)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_HEADS = tuple(
    re.compile(pattern)
    for pattern in (
        # SGLang: [2026-11-30 21:22:41 DP1 TP0] ; the first bracket may have been cut
        r"\[?(?P<time>20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d+)?"
        r"(?P<rank>(?: (?:DP|TP|PP|EP|CP|ATTN_?\w*?)\d+)*)(?: pid=\d+)?\]\s*",
        # kubectl, loguru, logging: 2025-07-02T16:41:31.123Z / 2025-07-02 16:41:31 | ERROR | module |
        r"(?P<time>20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: \||:| -)?\s+",
        # journald and syslog: Nov 30 21:22:41 host unit[123]:
        r"(?P<journal>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d) "
        r"\S+ [\w.@/:-]+(?:\[\d+\])?: ",
        # logging with a file: INFO 07-02 16:41:31 [engine.py:12] / WARNING server_args.py:1750: / ERROR:
        rf"(?P<level>{_LEVELS})(?: \d\d-\d\d \d\d:\d\d:\d\d)?(?:\s+\[?[\w.]+\.py:\d+\]?:?)?(?:\s*[:|]| -)?\s+(?=\S)",
        # docker compose, kubectl --prefix: name-1  |
        r"[\w./-]+\s+\| ",
        r"\[(?:pod/)?[\w./-]+/[\w./-]+\] ",
        # ray, vLLM: (RayWorkerWrapper pid=123) / (EngineCore_0 pid=1)
        r"\([\w ./-]+ (?:pid|rank|ip)=[^)]*\) ",
        r"\[(?P<torch>rank\d+)\]:?\s?",
        # dmesg: [188549.976351] / [Thu Mar 20 21:01:25 2025]
        r"\[\s*\d+\.\d+\] ",
        r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} [ \d]\d \d\d:\d\d:\d\d 20\d\d\] ",
        rf"\[(?P<level>{_LEVELS})\]:?\s+",
        r"[\w.]+(?: |:\w*:\d+ )\| ",
    )
)
_STAMP = re.compile(r"(20\d\d)-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)")
_JOURNAL = re.compile(r"(\w{3}) ([ \d]\d) (\d\d):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class Head:
    """What stood before the text. `time` is in seconds, comparable within one log; `body` is where the text begins."""

    body: int
    time: float | None = None
    rank: str = ""
    level: str = ""


def parse_head(text: str) -> Head:
    """Strip every known wrapper from the left of a line. An indented line has no head: it continues the one before."""
    position, time, rank, level = 0, None, "", ""
    while position < len(text):
        for pattern in _HEADS:
            if found := pattern.match(text, position):
                break
        else:
            break
        group = found.groupdict()
        if time is None:
            time = _seconds(group)
        rank = (group.get("rank") or group.get("torch") or rank).strip()
        level = group.get("level") or level
        if found.end() == position:
            break
        position = found.end()
    return Head(position, time, rank, level.replace("WARN", "WARNING").replace("INGING", "ING"))


def _seconds(group: dict[str, str | None]) -> float | None:
    """Seconds on a calendar of equal months of 31 days: only differences and order matter."""
    if (stamp := group.get("time")) and (found := _STAMP.match(stamp)):
        year, month, day, hour, minute, second = map(int, found.groups())
    elif (stamp := group.get("journal")) and (found := _JOURNAL.match(stamp)):
        year, month, day = 2000, _MONTHS.index(found[1]) + 1, int(found[2])
        hour, minute, second = int(found[3]), int(found[4]), int(found[5])
    else:
        return None
    return ((year * 12 + month) * 31 + day) * 86400.0 + hour * 3600 + minute * 60 + second
