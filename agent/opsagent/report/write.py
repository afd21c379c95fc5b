"""The files of a report, beside the journal that it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsagent.protocols import Event
from opsagent.report import html, markdown
from opsagent.report.model import StatusReport

VIEWER = "transcript.html"
"""What the transcript viewer is called when it lies beside the report."""


def write_report(folder: Path, report: StatusReport, events: Sequence[Event]) -> None:
    """Write `report.json`, `report.md` and `report.html`, each whole or not at all, readable by their owner only."""
    viewer = VIEWER if (folder / VIEWER).exists() else ""
    texts = {
        "report.html": html.render(report, events, viewer=viewer),
        "report.json": report.model_dump_json(indent=1) + "\n",
        "report.md": markdown.render(report),
    }
    for name, text in texts.items():
        part = folder / f".{name}.part"  # whole or not at all: a run that dies here has no report, and resume writes it
        part.write_text(text, encoding="utf-8")
        part.chmod(0o600)
        part.replace(folder / name)
