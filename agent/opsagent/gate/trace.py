"""One classification in progress: what the checkers found, which facts they used, and which they had to assume.

Checkers only ever add findings; the strictest one wins at the end. A fact that is not known yet is assumed, and its key
is remembered, so that the caller can ask the host for all missing facts at once and classify again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent.call import TIERS, Reason
from opsagent.gate.policy import Policy
from opsagent_tools.tool import Tier

MAX_DEPTH = 6
"""How many wrappers deep we look; deeper than this nobody writes by hand."""


def strictest(tiers: list[Tier]) -> Tier:
    """The highest of the tiers; R0 for none."""
    return max(tiers, key=TIERS.index, default="R0")


def up(tier: Tier, least: Tier) -> Tier:
    """`tier`, raised to at least `least`."""
    return strictest([tier, least])


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the host and of the run. Keys: `path:/x`, `pid:12`, `exe:ls`, `port:30000`, `gpus`, `unit:NAME`."""

    known: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    """Id of the run: units and processes called opsagent-<run>-* are ours."""
    owned: frozenset[str] = frozenset()
    """Real paths that this run created."""
    tainted: bool = False
    """Output of an untrusted source was read since the last declared step began."""
    configured: bool = False
    """Whether the host can be asked at all; if so, a fact that stays unknown is a doubt."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that spoke, with the tier it demands."""

    tier: Tier
    rule: str
    text: str


@dataclass(slots=True)
class Trace:
    """Lives for one classification only."""

    facts: Facts
    policy: Policy
    findings: list[Finding] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    used: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Key of a fact that was assumed → what was assumed, in words."""
    depth: int = 0
    upstream: tuple[tuple[str, ...], ...] = ()
    """Stages of the pipe before the one at hand."""
    downstream: tuple[tuple[str, ...], ...] = ()
    """Stages after it."""
    stdin: str | None = None
    undoes: bool = False
    """A rollback that the runbook declares: it gives back what the run took."""
    foreign: str = ""
    """Name of the container in which the argv at hand runs; its paths are not the host's."""

    def say(self, tier: Tier, rule: str, text: str) -> None:
        finding = Finding(tier, rule, text)
        if finding not in self.findings:
            self.findings.append(finding)

    def effect(self, text: str) -> None:
        if text not in self.effects:
            self.effects.append(text)

    def fact(self, key: str, assumed: str) -> Any:
        """The known value of a fact, or None after noting what is assumed instead."""
        if self.foreign and key.startswith(("path:", "exe:", "pid:")):
            key = f"{self.foreign}!{key}"
            assumed = f"in {self.foreign}: {assumed}"
        if key in self.facts.known:
            self.used[key] = self.facts.known[key]
            return self.facts.known[key]
        self.missing[key] = assumed
        return None

    @property
    def tier(self) -> Tier:
        return strictest([finding.tier for finding in self.findings])

    def reasons(self) -> tuple[Reason, ...]:
        """The rules that spoke, strictest first; R0 rules only when nothing else did."""
        loud = [f for f in self.findings if f.tier != "R0"] or self.findings
        ordered = sorted(loud, key=lambda f: -TIERS.index(f.tier))
        return tuple(Reason(f.rule, f.text) for f in ordered)
