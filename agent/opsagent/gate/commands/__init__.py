"""One checker per program, by family. A checker knows its program's own option grammar and judges values, not words."""

from __future__ import annotations

import importlib

from opsagent.gate.argv import Checker

FAMILIES = ("text",)


def table() -> dict[str, Checker]:
    """Program name → checker. Raises ValueError when two families claim one program."""
    found: dict[str, Checker] = {}
    for family in FAMILIES:
        commands: dict[str, Checker] = importlib.import_module(f"opsagent.gate.commands.{family}").COMMANDS
        twice = found.keys() & commands.keys()
        if twice:
            raise ValueError(f"two checkers for {', '.join(sorted(twice))}")
        found |= commands
    return found
