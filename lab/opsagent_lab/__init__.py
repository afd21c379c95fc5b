"""Simulated GPU hosts behind a real SSH server on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opsagent_lab.lab import Lab


def open(name: str, *, state: Path | None = None, speed: float | None = None) -> Lab:
    """Start the scenario `name` and serve its hosts until `close()`."""
    from opsagent_lab.lab import open_lab

    return open_lab(name, state=state, speed=speed)


def scenarios() -> list[str]:
    """Names of the scenarios that come with the lab."""
    from opsagent_lab.scenario import names

    return names()
