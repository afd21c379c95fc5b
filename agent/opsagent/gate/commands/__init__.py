"""One checker per program, by family. A checker knows its program's own option grammar and judges values, not words."""

from __future__ import annotations

import importlib

from opsagent.gate.argv import Checker

FAMILIES = (
    "archives", "awk", "containers", "fetch", "files", "find", "gpu", "network", "other", "packages", "processes",
    "python", "sed",
    "services", "shells", "storage", "text", "wrappers",
)  # fmt: skip


def table() -> dict[str, Checker]:
    """Program name → checker. Raises ValueError when two families claim one program."""
    from opsagent.gate.commands import tables

    found: dict[str, Checker] = tables.checkers()
    for family in FAMILIES:
        commands: dict[str, Checker] = importlib.import_module(f"opsagent.gate.commands.{family}").COMMANDS
        twice = found.keys() & commands.keys()
        if twice:
            raise ValueError(f"two checkers for {', '.join(sorted(twice))}")
        found |= commands
    unchecked = sorted(name for name, entry in tables.entries().items() if entry.kind == "own" and name not in found)
    if unchecked:
        raise ValueError(f"no checker for {', '.join(unchecked)}")
    return found
