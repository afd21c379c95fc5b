"""Everything that can go wrong, as one tree. Control signals of the loop are not errors and live with the loop."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opsagent_tools.hosts.hostkeys import HostKey


class ExitCode(IntEnum):
    """Exit codes of `opsagent run`; the other verbs use the same numbers."""

    VERIFIED = 0
    """Done, and checked."""
    FAILED = 1
    """The work failed; the report says why and what it would take."""
    INVALID = 2
    """Usage, configuration or runbook: do it differently."""
    TRANSIENT = 3
    """Infrastructure, for now: safe to try again."""
    WAITING_APPROVAL = 4
    """A call needs a person; the state is saved: approve, then resume."""
    BUDGET = 5
    """A budget of the runbook is used up."""
    DENIED = 6
    """The policy refuses it."""
    UNKNOWN_OUTCOME = 7
    """A call may or may not have happened: look at the host."""
    MODEL_UNUSABLE = 8
    """The model answers nothing that can be used."""
    REPLAY_MISMATCH = 9
    """A replay went another way, or a transcript is damaged."""
    INTERRUPTED = 130
    """Ctrl-C or a signal; the state is saved: resume."""


class OpsError(Exception):
    """Something is wrong. `what` names it, `where` places it, `hint` says what to do next."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.hint = what, where, hint

    def as_json(self) -> dict[str, dict[str, str]]:
        """The object that `--json` verbs print when they cannot do their work."""
        return {"error": {"what": self.what, "where": self.where, "hint": self.hint}}


class InputError(OpsError, ValueError):
    """Bad usage, configuration, runbook or file: do not retry."""

    exit_code = ExitCode.INVALID


class HostError(OpsError):
    """A host could not be used."""

    exit_code = ExitCode.TRANSIENT


class HostUnreachable(HostError, ConnectionError):
    """Refused, timed out or unresolvable: nothing was executed."""


class HostKeyMismatch(HostError):
    """The host key is unknown or has changed: we do not connect."""

    exit_code = ExitCode.INVALID
    offered: HostKey | None = None
    """The unknown key, for a person to compare and accept; None when a known one has changed."""


class AuthFailed(HostError, PermissionError):
    """The host refused our credentials."""

    exit_code = ExitCode.INVALID


class OutcomeUnknown(HostError):
    """The link was lost while a command ran: it may or may not have happened."""

    exit_code = ExitCode.UNKNOWN_OUTCOME


class ToolFailed(OpsError):
    """A tool ran and could not do its work; the message goes to the model."""


class PolicyDenied(OpsError, PermissionError):
    """The gate refuses the call."""

    exit_code = ExitCode.DENIED


class BudgetExceeded(OpsError):
    """A budget of the run is used up."""

    exit_code = ExitCode.BUDGET


class ModelUnusable(OpsError):
    """The model refuses, or answers what cannot be used, beyond the cap."""

    exit_code = ExitCode.MODEL_UNUSABLE


class ModelUnavailable(OpsError):
    """The model's endpoint cannot be reached or is overloaded beyond the cap."""

    exit_code = ExitCode.TRANSIENT


class JournalError(OpsError):
    """The journal cannot be written or read."""


class TranscriptDamaged(JournalError):
    """A recorded run is damaged, or its replay asked for something that was not recorded."""

    exit_code = ExitCode.REPLAY_MISMATCH


def meant(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known word that `word` was probably meant to be; '' when none is near."""
    return next(iter(difflib.get_close_matches(word, list(known), 1, cutoff)), "")


def suggest(word: str, known: Iterable[str], *, cutoff: float = 0.6, otherwise: str | None = None) -> str:
    """The hint for a name that is not there: ``did you mean `X`?``, else `otherwise`, else the names that are known."""
    names = list(known)
    found = meant(word, names, cutoff)
    if found:
        return f"did you mean `{found}`?"
    return otherwise if otherwise is not None else f"known: {', '.join(sorted(names))}"


def worst(codes: list[ExitCode]) -> ExitCode:
    """The one exit code to report when several hold (7 > 6 > 1 > 5 > 4 > 8 > 3 > the rest)."""
    order = [7, 6, 1, 5, 4, 8, 3, 130, 9, 2, 0]
    return min(codes, key=order.index, default=ExitCode.VERIFIED)
