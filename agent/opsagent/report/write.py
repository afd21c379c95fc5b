"""The files of a report, beside the journal that it was made from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from opsagent.journal.disk import cannot
from opsagent.protocols import Event
from opsagent.report import html, markdown
from opsagent.report.model import StatusReport

PAGE = "report.html"
VIEWER = "transcript.html"
"""What the transcript viewer is called when it lies beside the report."""


def write_report(folder: Path, report: StatusReport, events: Sequence[Event]) -> None:
    """Write `report.json`, `report.md` and `report.html`, each whole or not at all, for their owner. Raises JournalError."""
    texts = {
        PAGE: html.render(report, events, viewer=_viewer(folder)),
        "report.json": report.model_dump_json(indent=1) + "\n",
        "report.md": markdown.render(report),
    }
    for name, text in texts.items():
        _put(folder / name, text)


def link_viewer(folder: Path, events: Sequence[Event]) -> None:
    """Write `report.html` again from `report.json`, with links into the transcript viewer that lies beside it now.

    A report that is not there, or cannot be read, stays as it is: `opsagent verify` says what is wrong with it.
    """
    try:
        report = StatusReport.model_validate_json((folder / "report.json").read_bytes())
    except (OSError, ValueError):
        return
    _put(folder / PAGE, html.render(report, events, viewer=_viewer(folder)))


def _viewer(folder: Path) -> str:
    return VIEWER if (folder / VIEWER).exists() else ""


def _put(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")  # a run that dies here has no report, and resume writes it
    try:
        part.unlink(missing_ok=True)  # whatever it is: a link of a stranger's would be written through
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise cannot("write the report", path, error) from error
