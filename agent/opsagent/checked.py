"""A runbook that is safe to run: read, compiled and linted against the tools and causes of this version."""

from __future__ import annotations

from pathlib import Path

from opsagent.data import data_dir
from opsagent.runbook.lint import lint
from opsagent.runbook.model import Runbook
from opsagent.runbook.parse import Fault, RunbookError
from opsagent_tools.errors import InputError, suggest


def known_causes() -> frozenset[str]:
    """The slugs of every cause that the diagnosis can name."""
    from opsagent_tools.sglang.diagnosis import CAUSES

    return frozenset(CAUSES)


def faults_of(text: str, path: str) -> tuple[Runbook | None, list[Fault]]:
    from opsagent.session import all_tools

    return lint(text, path, all_tools(), known_causes())


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"


def _which(path: Path) -> str:
    """The runbook that may have been meant: one beside the path, else those that come with the program."""
    folder = path if path.is_dir() else path.parent
    beside = sorted(str(each) for each in folder.glob("*.md")) if folder.is_dir() else []
    shipped = sorted(each.stem for each in data_dir("runbooks").glob("*.md"))
    return suggest(str(path), beside, otherwise=f"a .md file; by name come with opsagent: {', '.join(shipped)}")


def checked_runbook(path: Path) -> Runbook:
    """Raises RunbookError with every fault, or InputError when the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the runbook: {_reason(error)}", where=str(path), hint=_which(path)) from error
    runbook, faults = faults_of(text, str(path))
    if faults or runbook is None:
        raise RunbookError(str(path), faults)
    return runbook
