"""The search for better flags: what moves the limits, by how much, at which cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opsagent_tools.sglang.arguments import Arguments
from opsagent_tools.sglang.case import Assessment, Case, Failed
from opsagent_tools.sglang.plan import Balance, Option, Proposal, Wish


@dataclass(frozen=True, slots=True)
class Better:
    """What the search found."""

    proposal: Proposal | None = None
    advice: list[Option] = field(default_factory=list)
    balance: Balance | None = None


def search(
    case: Case,
    arguments: Arguments,
    found: Assessment | None,
    failed: Failed | None,
    want: Wish | None,
    keep: Sequence[str],
) -> Better:
    return Better()
