"""Words that every form of the report uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsagent.report.model import StatusReport

LONG = 2000
"""Characters after which a text is cut for people; `report.json` and the journal keep it whole."""


def readable(report: StatusReport) -> StatusReport:
    """The report with its texts cut where nobody reads on: a host may have sent a line of a megabyte."""
    return StatusReport.model_validate(_cut(report.model_dump()))


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {_cut(key): _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, str) and len(value) > LONG:
        return f"{value[:LONG]}… ({len(value):,} characters)"
    return value


def change_text(change: Mapping[str, str | None]) -> str:
    """`--a 1 --b 2`, or `without --a`."""
    given = [
        flag if value in ("", "true") else f"{flag} {value}" for flag, value in change.items() if value is not None
    ]
    gone = [flag for flag, value in change.items() if value is None]
    return " ".join(given) + (" " if given and gone else "") + ("without " + ", ".join(gone) if gone else "")
