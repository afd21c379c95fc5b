"""Files that ship with the program: runbooks and transcripts, beside the code in a checkout, inside it in a wheel."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def data_dir(name: str) -> Path:
    """The folder `runbooks` or `transcripts`."""
    package = Path(str(files("opsagent")))
    checkout = package.parent.parent / name
    return checkout if checkout.is_dir() else package / "_data" / name


def find_runbook(name: str) -> Path:
    """The runbook of a path, or the shipped one of that name (`runbooks/migrate.md`, `migrate.md`, `migrate`)."""
    given = Path(name)
    if given.is_file():
        return given
    shipped = data_dir("runbooks") / (given.name if given.suffix == ".md" else given.name + ".md")
    return shipped if shipped.is_file() and (len(given.parts) == 1 or given.parts[0] == "runbooks") else given
