"""A runbook that is safe to run: read, compiled and linted against the tools and causes of this version."""

from __future__ import annotations

from pathlib import Path

from opsagent.runbook.lint import lint
from opsagent.runbook.model import Runbook
from opsagent.runbook.parse import Fault, RunbookError
from opsagent_tools.errors import InputError


def known_causes() -> frozenset[str]:
    """The slugs of every cause that the diagnosis can name."""
    from opsagent_tools.sglang.diagnosis import CAUSES

    return frozenset(CAUSES)


def faults_of(text: str, path: str) -> tuple[Runbook | None, list[Fault]]:
    from opsagent.session import all_tools

    return lint(text, path, all_tools(), known_causes())


def checked_runbook(path: Path) -> Runbook:
    """Raises RunbookError with every fault, or InputError when the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the runbook: {error}", where=str(path), hint="opsagent run RUNBOOK.md"
        ) from error
    runbook, faults = faults_of(text, str(path))
    if faults or runbook is None:
        raise RunbookError(str(path), faults)
    return runbook
