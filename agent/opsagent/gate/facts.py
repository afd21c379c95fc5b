"""Where facts of a host come from. They are asked for in one go, and asked afresh before an effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from opsagent_tools import probes
from opsagent_tools.errors import OutcomeUnknown, ToolFailed
from opsagent_tools.host import Host


class FactSource(Protocol):
    """Answers keys of facts (`path:/x`, `pid:12`, `exe:ls`, `port:30000`, `gpus`) about one host."""

    @property
    def configured(self) -> bool:
        """False when there is no host to ask: everything is assumed then."""
        ...

    def ask(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Known facts of these keys. What cannot be found out is left out; never raises for a single fact."""
        ...


@dataclass(frozen=True, slots=True)
class NoFacts:
    """No host to ask: paths count as not being links, pids as not ours."""

    configured: bool = False

    def ask(self, keys: Iterable[str]) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """Facts that are given, as in tests."""

    facts: Mapping[str, Any]
    configured: bool = True

    def ask(self, keys: Iterable[str]) -> Mapping[str, Any]:
        return {key: self.facts[key] for key in keys if key in self.facts}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Asks a host with one probe. A host that cannot answer leaves its facts unknown; a lost link is an error."""

    host: Host
    configured: bool = True

    def _asked(self, wanted: list[str]) -> dict[str, Any]:
        """A lost link is no unknown outcome here: the probe only reads, so it is asked again."""
        try:
            return probes.ask(self.host, "facts", {"keys": wanted}, timeout_s=30.0)
        except OutcomeUnknown:
            return probes.ask(self.host, "facts", {"keys": wanted}, timeout_s=30.0)

    def ask(self, keys: Iterable[str]) -> Mapping[str, Any]:
        wanted = sorted(key for key in keys if "!" not in key)
        if not wanted:
            return {}
        try:
            answer = self._asked(wanted)
        except ToolFailed:
            return {}
        facts = answer.get("facts")
        return {str(k): v for k, v in facts.items() if k in wanted} if isinstance(facts, dict) else {}
