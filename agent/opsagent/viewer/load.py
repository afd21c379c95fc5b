"""A run folder as a view, with what a reader must be told first."""

from __future__ import annotations

import json
from functools import partial

from opsagent.journal.reader import read_blob
from opsagent.journal.runs import Opened
from opsagent.viewer.build import BUDGET, build_view
from opsagent.viewer.model import View
from opsagent_tools.errors import TranscriptDamaged


def view_of(opened: Opened, damage: TranscriptDamaged | None, *, budget: int = BUDGET) -> View:
    """The view of a run as far as it could be read; a report that cannot be read is a warning, not an end."""
    warnings, report = [], None
    if damage is not None:
        warnings.append(f"The journal is damaged: {damage.what}. What is shown here comes before that line.")
    if opened.log.torn:
        warnings.append(f"Line {opened.log.torn_line} is torn: the process died while it was written.")
    try:
        found = json.loads((opened.folder / "report.json").read_text(encoding="utf-8"))
        report = found if isinstance(found, dict) else {}
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError) as error:
        warnings.append(f"report.json cannot be read: {error}")
    return build_view(
        opened.state, opened.log.events, opened.status, partial(read_blob, opened.folder),
        report=report, warnings=warnings, budget=budget,
    )  # fmt: skip
