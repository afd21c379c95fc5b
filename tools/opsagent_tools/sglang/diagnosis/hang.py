"""Failures that print nothing: no progress for longer than the phase ever takes, told from the times of the log."""

from __future__ import annotations

from opsagent_tools.sglang.diagnosis.evaluate import Candidate
from opsagent_tools.sglang.diagnosis.scan import Scan


def stalled(scan: Scan) -> list[Candidate]:
    """Candidates for hangs that show only as time that passes."""
    return []
