"""Control signals of the loop. They are not errors: `except OpsError` never swallows one."""

from __future__ import annotations

from collections.abc import Sequence

from opsagent_tools.errors import ExitCode


class Signal(Exception):
    """Base of the control signals."""


class NeedApproval(Signal):
    """A call waits for a person who is not there: the run ends with exit 4 and can be resumed."""

    def __init__(self, call_id: str, what: str) -> None:
        super().__init__(what)
        self.call_id, self.what = call_id, what


class StopRun(Signal):
    """The run ends now, at an event boundary, with this exit code."""

    def __init__(
        self, exit_code: ExitCode, reason: str, hint: str = "", evidence: Sequence[str] = ()
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.exit_code, self.reason, self.hint, self.evidence = exit_code, reason, hint, list(evidence)
        """`evidence`: the events that show why."""
