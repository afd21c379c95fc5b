"""The policy of one run: configuration layers, tightened by what the runbook's front matter declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opsagent.call import TIERS
from opsagent.config import Layer, layers
from opsagent.gate import windows
from opsagent.gate.policy import Policy, narrower
from opsagent.gate.policy_file import parse_ports, policy_from
from opsagent.runbook.model import Runbook
from opsagent_tools.tool import Tier


def for_run(
    runbook: Runbook, *, tier_caps: Mapping[str, Tier] | None = None, found: Sequence[Layer] | None = None
) -> Policy:
    """Layers (those of this machine, unless given), then the runbook. Raises InputError for what cannot be read.

    The runbook names ports, containers and units: only those that the layers allow count. Its roots narrow the layers'.
    """
    policy = policy_from(layers() if found is None else found)
    front = runbook.front
    ports = _ranges(parse_ports(front.allow.ports, runbook.path), policy.port_limit)
    caps = dict(policy.tier_caps)
    for host, tier in (tier_caps or {}).items():
        caps[host] = min(tier, caps.get(host, "X"), key=TIERS.index)
    if front.maintenance_window:
        windows.parse(front.maintenance_window)
    return replace(
        policy,
        roots=narrower(policy.roots, front.allow.roots) if front.allow.roots else policy.roots,
        ports=ports,
        containers=_within(front.allow.containers, policy.container_limit),
        units=_within(front.allow.units, policy.unit_limit),
        tools=front.allow.tools or None,
        hosts=_hosts(policy.hosts, front.allow.hosts),
        tier_caps=caps,
        maintenance_windows=(
            *policy.maintenance_windows,
            *([front.maintenance_window] if front.maintenance_window else []),
        ),
    )


def _hosts(upper: tuple[str, ...] | None, named: tuple[str, ...]) -> tuple[str, ...] | None:
    if not named:
        return upper
    return named if upper is None else tuple(each for each in named if each in upper)


def _within(named: tuple[str, ...], limit: tuple[str, ...] | None) -> tuple[str, ...]:
    return named if limit is None else tuple(each for each in named if each in limit)


def _ranges(
    named: tuple[tuple[int, int], ...], limit: tuple[tuple[int, int], ...] | None
) -> tuple[tuple[int, int], ...]:
    """Intersection of two sets of port ranges."""
    if limit is None:
        return named
    pairs = [(max(a, c), min(b, d)) for a, b in named for c, d in limit]
    return tuple((low, high) for low, high in pairs if low <= high)
