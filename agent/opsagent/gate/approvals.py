"""Who may let a call through: the mode's table, grants of a person, the pre-approval file, decisions recorded meanwhile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from opsagent.call import Call, Scope, Verdict
from opsagent_tools.errors import InputError

Mode = Literal["ask", "declared", "never"]
Ruling = Literal["runs", "asks", "waits", "denied"]
MODES: tuple[Mode, ...] = ("ask", "declared", "never")


def ruling(call: Call, verdict: Verdict, mode: Mode) -> Ruling:
    """The table of modes: what happens to a call of this tier before anybody was asked."""
    if verdict.tier == "X":
        return "denied"
    if verdict.tier == "R0":
        return "runs"
    if mode == "never":
        return "denied"
    if verdict.tier == "R1" and call.declared:
        return "runs"
    return "asks" if mode == "ask" else "waits"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a person allowed beyond one call, for this run only and never for R3."""

    scope: Scope
    host: str
    tool: str
    rules: tuple[str, ...]
    tier: str
    args: str
    step: str

    def covers(self, call: Call, verdict: Verdict, args: str) -> bool:
        """Same call in this step, or (scope `rule`) the same rules for the same tool and host."""
        if verdict.tier in ("R3", "X") or verdict.tier != self.tier or call.host != self.host or call.tool != self.tool:
            return False
        if self.scope == "step":
            return call.step == self.step and args == self.args
        return self.scope == "rule" and rules_of(verdict) == self.rules


def rules_of(verdict: Verdict) -> tuple[str, ...]:
    return tuple(sorted({reason.rule for reason in verdict.reasons}))


def read_file(path: Path) -> frozenset[str]:
    """A pre-approval file: one binding (sha256) a line, `#` begins a comment. Raises InputError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the pre-approval file: {error}", where=str(path)) from error
    found = set()
    for number, line in enumerate(lines, 1):
        word = line.split("#", 1)[0].strip()
        if not word:
            continue
        if re.fullmatch(r"[0-9a-f]{64}", word) is None:
            raise InputError(
                "not a call's hash",
                where=f"{path}:{number}",
                hint="write the 64 hex digits that the waiting run printed",
            )
        found.add(word)
    return frozenset(found)


def expired(decision: Mapping[str, Any], now: datetime) -> bool:
    """Whether a recorded approval (data of approval.decided) is too old to be used; without `expires` it never is."""
    expires = decision.get("expires")
    return isinstance(expires, str) and datetime.fromisoformat(expires) < now
