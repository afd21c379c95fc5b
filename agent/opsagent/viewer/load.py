"""A run folder as a view, with what a reader must be told first."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from opsagent.journal.reader import read_blob
from opsagent.journal.runs import Opened
from opsagent.viewer.build import BUDGET, build_view
from opsagent.viewer.model import View
from opsagent_tools.errors import TranscriptDamaged


def view_of(opened: Opened, damage: TranscriptDamaged | None, *, budget: int = BUDGET) -> View:
    """The view of a run as far as it could be read; a report that cannot be read is a warning, not an end."""
    warnings = []
    if damage is not None:
        warnings.append(f"The journal is damaged: {damage.what}. What is shown here comes before that line.")
    if opened.log.torn:
        warnings.append(f"Line {opened.log.torn_line} is torn: the process died while it was written.")
    report, wrong = report_of(opened.folder)
    warnings += [wrong] if wrong else []
    return build_view(
        opened.state, opened.log.events, opened.status, partial(read_blob, opened.folder),
        report=report, warnings=warnings, budget=budget,
    )  # fmt: skip


def report_of(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The report beside a journal as it was written, None when there is none; and what is wrong with it, or ''."""
    try:
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError, RecursionError) as error:
        return None, f"report.json cannot be read: {error}"
    return (found, "") if isinstance(found, dict) else (None, "report.json is no object")
