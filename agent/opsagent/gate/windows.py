"""Maintenance windows: `Sat,Sun 22:00-04:00 UTC`, `Mon-Fri 20:00-06:00 Europe/Berlin`, `02:00-05:00` (every day, UTC)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from opsagent_tools.errors import InputError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WINDOW = re.compile(
    r"(?:(?P<days>[A-Za-z,-]+)\s+)?(?P<begin>\d{1,2}:\d{2})\s*-\s*(?P<end>\d{1,2}:\d{2})(?:\s+(?P<zone>[A-Za-z_/+0-9-]+))?"
)


@dataclass(frozen=True, slots=True)
class Window:
    """Days (0 = Monday) on which it opens, and the times of opening and closing in its zone."""

    days: frozenset[int]
    begin: time
    end: time
    zone: ZoneInfo


def parse(text: str) -> Window:
    """Read a window. Raises InputError with an example."""
    found = WINDOW.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError("days, times and zone")
        days = _days(found["days"] or "mon-sun")
        return Window(
            days, time.fromisoformat(found["begin"].zfill(5)), _end(found["end"]), ZoneInfo(found["zone"] or "UTC")
        )
    except (ValueError, ZoneInfoNotFoundError) as error:
        raise InputError(
            f"not a maintenance window: {text!r} ({error})", hint='write "Sat,Sun 22:00-04:00 UTC"'
        ) from error


def _end(text: str) -> time:
    return time(0) if text == "24:00" else time.fromisoformat(text.zfill(5))


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        low, high = DAYS.index(first[:3]), DAYS.index((last or first)[:3])
        found |= {day % 7 for day in range(low, high + 1 if high >= low else high + 8)}
    return frozenset(found)


def is_open(text: str, now: datetime) -> bool:
    """Whether the window is open at `now` (aware). A window that passes midnight belongs to the day on which it opened."""
    window = parse(text)
    local = now.astimezone(window.zone)
    clock = local.time()
    if window.begin < window.end:
        return local.weekday() in window.days and window.begin <= clock < window.end
    yesterday = (local - timedelta(days=1)).weekday()
    return (local.weekday() in window.days and clock >= window.begin) or (
        yesterday in window.days and clock < window.end
    )
