"""Words that every form of the report uses."""

from __future__ import annotations

from collections.abc import Mapping


def change_text(change: Mapping[str, str | None]) -> str:
    """`--a 1 --b 2`, or `without --a`."""
    given = [
        flag if value in ("", "true") else f"{flag} {value}" for flag, value in change.items() if value is not None
    ]
    gone = [flag for flag, value in change.items() if value is None]
    return " ".join(given) + (" " if given and gone else "") + ("without " + ", ".join(gone) if gone else "")
