"""How long to wait before a request is sent again: Retry-After in all its forms, else backoff with jitter."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of the retries of one request. Seconds."""

    attempts: int = 6
    """Requests in all, the first included."""
    first_s: float = 0.5
    most_s: float = 30.0
    longest_s: float = 300.0
    """The longest wait that an endpoint may ask for; above it we give up and say the time."""
    total_s: float = 600.0
    """The longest that all waits of one request may take together."""

    def backoff(self, attempt: int, rng: random.Random) -> float:
        """Seconds before attempt + 1: doubling, capped, up to a quarter less."""
        return float(min(self.most_s, self.first_s * 2.0 ** (attempt - 1)) * (1.0 - 0.25 * rng.random()))


def retry_after(headers: Mapping[str, str], now: Callable[[], datetime]) -> float | None:
    """Seconds that the response asks to wait, or None when it says nothing usable.

    Reads `retry-after-ms`, then `retry-after` as seconds (also with a fraction) or as an HTTP date, which is taken against
    the response's own `date` where there is one (their clock, not ours). 0 and the past are 0.
    """
    lowered = {key.lower(): value.strip() for key, value in headers.items()}
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if re.fullmatch(r"\d{1,12}(\.\d{1,12})?", lowered.get(name, "")):
            return float(lowered[name]) * scale
    until = _date(lowered.get("retry-after", ""))
    if until is None:
        return None
    since = _date(lowered.get("date", "")) or now()
    return max(0.0, (until - since).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        value = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)
