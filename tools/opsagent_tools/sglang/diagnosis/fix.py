"""Remedies with the numbers of this very failure, in flags that the running version has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opsagent_tools.sglang.diagnosis.model import Fix, FlagValue
from opsagent_tools.sglang.diagnosis.scan import Hit, Launch
from opsagent_tools.sglang.diagnosis.signature import Cause

RENAMED = {
    "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
}
"""Older name to newer name of the same option; which one a version has is looked up in its option table."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What a remedy may depend on."""

    hit: Hit
    launch: Launch
    sglang: str | None
    gpu: str | None

    @property
    def text(self) -> str:
        return self.hit.match.string

    @property
    def args(self) -> dict[str, Any]:
        return self.launch.reader.facts.args


def fix_for(cause: Cause, hints: Hints) -> Fix:
    """The cause's remedy, with the overrides of the running version and the numbers that the log gives."""
    from opsagent_tools.sglang.diagnosis.numbers import NUMBERS

    fix = Fix(
        summary=cause.fix,
        flags={flag: None if value == "" else value for flag, value in cause.flags.items()},
        env=dict(cause.env),
        commands=[command.replace("VERSION", hints.sglang or "VERSION") for command in cause.commands],
        version=cause.version,
    )
    for override in cause.by_version:
        if _applies(override, hints.sglang):
            for flag in override.get("drop", ()):
                fix.flags.pop(flag, None)
            fix.flags.update(override.get("flags", {}))
            fix.env.update(override.get("env", {}))
    if adjust := NUMBERS.get(cause.slug):
        adjust(fix, hints)
    if hints.sglang:
        fix.flags = existing(fix.flags, hints.sglang)
        if fix.version and release(fix.version) <= release(hints.sglang):
            fix.version = None
    return fix


def existing(flags: dict[str, FlagValue], version: str) -> dict[str, FlagValue]:
    """The flags that this version has; a flag that was renamed gets its name of that version, others are left out.

    Removing a flag (None) needs no check: the launch that failed had it.
    """
    from opsagent_tools.sglang.options import table

    try:
        options = table(modelled(version))
    except (KeyError, ValueError):
        return flags
    backwards = {new: old for old, new in RENAMED.items()}
    kept: dict[str, FlagValue] = {}
    for flag, value in flags.items():
        name = next((n for n in (flag, RENAMED.get(flag), backwards.get(flag)) if n in options), None)
        if name is not None or value is None:
            kept[name or flag] = value
    return kept


def modelled(version: str) -> str:
    """The modelled release that a version is nearest to, from below if possible."""
    known = ("0.5.9", "0.5.10", "0.5.11", "0.5.23")
    below = [v for v in known if release(v) <= release(version)]
    return below[-1] if below else known[0]


def release(version: str) -> tuple[int, ...]:
    """`0.5.10.post1` as (0, 5, 10)."""
    numbers = []
    for part in version.lstrip("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers[:3])


def _applies(override: dict[str, Any], version: str | None) -> bool:
    if version is None:
        return False
    first, last = override.get("from"), override.get("until")
    return (first is None or release(version) >= release(first)) and (last is None or release(version) <= release(last))
