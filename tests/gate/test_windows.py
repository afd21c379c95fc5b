"""Maintenance windows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from opsagent.gate.windows import is_open, parse
from opsagent_tools.errors import InputError

TUESDAY = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "hour", "open_"),
    [
        ("02:00-05:00", 3, True), ("02:00-05:00", 5, False), ("02:00-05:00 UTC", 1, False), ("22:00-04:00", 23, True),
        ("22:00-04:00", 3, True), ("22:00-04:00", 12, False), ("Mon 22:00-04:00 UTC", 3, True),
        ("Tue 22:00-04:00 UTC", 3, False),
        ("Fri-Tue 00:00-24:00", 12, True), ("Wed-Fri 00:00-24:00", 12, False), ("mon,tue 10:00-11:00 Europe/Berlin",
        9, True),
        ("sat,sun 10:00-11:00", 10, False),
    ],
)  # fmt: skip
def test_open(window: str, hour: int, open_: bool) -> None:
    assert is_open(window, TUESDAY.replace(hour=hour)) is open_


@pytest.mark.parametrize("text", ["", "always", "25:00-26:00", "Foo 10:00-11:00", "10:00-11:00 Nowhere/City", "10-11"])
def test_faults(text: str) -> None:
    with pytest.raises(InputError, match="maintenance window"):
        parse(text)
