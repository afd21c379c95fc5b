"""The `[gate]` tables of the configuration layers, folded into one policy. A lower layer can only tighten.

[gate]
roots = ["/srv/models", "/opt/sglang-*"]     # where new files are R1; below the user's layer only a narrower set counts
ports = ["30000-30010"]                      # servers may be R1 here, if the runbook declares the port too
containers = ["129"]
units = ["sglang-old"]
hosts = ["kpro5", "kpro5/ct129"]             # hosts that may be written to
max_hosts_written = 2
maintenance_window = "Sat,Sun 22:00-04:00 UTC"
approval_expiry_s = 1800
[gate.tier_caps]
kpro6 = "R1"
[[gate.rule]]
id = "no-nccl-tests"
tool = "ssh_exec"
prefix = ["all_reduce_perf"]
tier = "R2"
why = "takes all GPUs"
match = ["all_reduce_perf -b 8"]             # run whenever the file is loaded; at least one
not_match = ["nvidia-smi"]
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from opsagent.call import TIERS
from opsagent.config import Layer, known_keys
from opsagent.gate import windows
from opsagent.gate.policy import Policy, PolicyRule, narrower
from opsagent.gate.trace import strictest
from opsagent_tools.errors import InputError
from opsagent_tools.tool import Tier

KEYS = (
    "roots",
    "ports",
    "containers",
    "units",
    "hosts",
    "max_hosts_written",
    "maintenance_window",
    "approval_expiry_s",
    "tier_caps",
    "rule",
)
RULE_KEYS = ("id", "tool", "prefix", "tier", "why", "match", "not_match")


def policy_from(found: Sequence[Layer]) -> Policy:
    """Fold layers, the strongest first. Raises InputError for a bad value, an unknown key, or an example that fails."""
    policy = Policy()
    roots_named = False
    for layer in found:
        known_keys(layer.gate, KEYS, layer.origin, "[gate]")
        roots = _roots(layer)
        if roots is not None:
            may_replace = not roots_named and layer.level in ("administrator", "user")
            policy = replace(policy, roots=roots if may_replace else narrower(policy.roots, roots))
            roots_named = True
        policy = _tighten(policy, layer)
        policy = replace(policy, rules=(*policy.rules, *_rules(layer)))
    return policy


def _tighten(policy: Policy, layer: Layer) -> Policy:
    table, where = layer.gate, layer.origin
    limits = {
        "port_limit": _both(policy.port_limit, _ports(table, where)),
        "container_limit": _both(policy.container_limit, _words(table, "containers", where)),
        "unit_limit": _both(policy.unit_limit, _words(table, "units", where)),
        "hosts": _both(policy.hosts, _words(table, "hosts", where)),
    }
    most = _number(table, "max_hosts_written", where)
    expiry = _number(table, "approval_expiry_s", where)
    window = table.get("maintenance_window")
    if window is not None:
        windows.parse(str(window))
    caps = dict(policy.tier_caps)
    for host, tier in _table(table, "tier_caps", where).items():
        caps[host] = min(_tier(tier, where, f"tier_caps.{host}"), caps.get(host, "X"), key=TIERS.index)
    return replace(
        policy,
        **cast(dict[str, Any], limits),
        max_hosts_written=_least(policy.max_hosts_written, None if most is None else int(most)),
        approval_expiry_s=min(policy.approval_expiry_s, expiry if expiry is not None else policy.approval_expiry_s),
        maintenance_windows=(*policy.maintenance_windows, *([str(window)] if window is not None else [])),
        tier_caps=caps,
    )


def _both(upper: tuple[Any, ...] | None, lower: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """What both allow; None allows all."""
    if upper is None or lower is None:
        return lower if upper is None else upper
    return tuple(each for each in lower if each in upper)


def _least(upper: int | None, lower: int | None) -> int | None:
    given = [each for each in (upper, lower) if each is not None]
    return min(given) if given else None


def _roots(layer: Layer) -> tuple[str, ...] | None:
    roots = _words(layer.gate, "roots", layer.origin)
    for each in roots or ():
        if not each.startswith("/") or "/.." in each or each.rstrip("/") == "":
            raise InputError(f"not a root: {each!r}", where=layer.origin, hint='an absolute folder, e.g. "/srv/models"')
    return roots


def parse_ports(texts: Sequence[str], where: str) -> tuple[tuple[int, int], ...]:
    """`30000` and `30000-30010` as inclusive ranges. Raises InputError."""
    found = []
    for each in texts:
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", str(each))
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 1 <= low <= high <= 65535:
            raise InputError(f"not a port range: {each!r}", where=where, hint='write "30000-30010"')
        found.append((low, high))
    return tuple(found)


def _ports(table: dict[str, Any], where: str) -> tuple[tuple[int, int], ...] | None:
    words = _words(table, "ports", where)
    return None if words is None else parse_ports(words, where)


def _words(table: dict[str, Any], key: str, where: str) -> tuple[str, ...] | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, (str, int)) for each in value):
        raise InputError(f"`{key}` must be a list of words", where=where)
    return tuple(str(each) for each in value)


def _number(table: dict[str, Any], key: str, where: str) -> float | None:
    value = table.get(key)
    if value is not None and (not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0):
        raise InputError(f"`{key}` must be a positive number", where=where)
    return value


def _table(table: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"`{key}` must be a table", where=where)
    return value


def _tier(value: Any, where: str, place: str) -> Tier:
    if value not in TIERS:
        raise InputError(f"{place}: {value!r} is not a tier", where=where, hint="one of R0, R1, R2, R3, X")
    return cast(Tier, value)


def _rules(layer: Layer) -> list[PolicyRule]:
    tables = layer.gate.get("rule", [])
    if not isinstance(tables, list):
        raise InputError("`rule` must be tables", where=layer.origin, hint="[[gate.rule]]")
    return [_rule(table, layer.origin) for table in tables]


def _rule(table: dict[str, Any], where: str) -> PolicyRule:
    known_keys(table, RULE_KEYS, where, "[[gate.rule]]")
    name = str(table.get("id", ""))
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise InputError("a rule needs an `id` of small letters, digits, dots and dashes", where=where)
    tier = _tier(table.get("tier"), where, name)
    if strictest([tier, "R0"]) == "R0":
        raise InputError(f"{name}: a rule can only raise a tier; R0 raises nothing", where=where)
    rule = PolicyRule(
        id=name, tier=tier, why=str(table.get("why", "")) or "a rule of the policy", tool=str(table.get("tool", "*")),
        prefix=_argv(table.get("prefix", []), where, name), origin=where,
        match=tuple(_argv(each, where, name) for each in table.get("match", [])),
        not_match=tuple(_argv(each, where, name) for each in table.get("not_match", [])),
    )  # fmt: skip
    _examples(rule)
    return rule


def _argv(value: Any, where: str, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(shlex.split(value))
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise InputError(f"{name}: a command is a list of words or one line", where=where)


def _examples(rule: PolicyRule) -> None:
    """Run a rule's own examples: a rule that does not do what it says must not be in force."""
    tool = rule.tool if rule.tool != "*" else "ssh_exec"
    if not rule.match:
        raise InputError(
            f"{rule.id}: no example in `match`", where=rule.origin, hint='match = ["the command it is for"]'
        )
    for example in rule.match:
        if not rule.applies(tool, example):
            raise InputError(f"{rule.id}: does not match its example {shlex.join(example)!r}", where=rule.origin)
    for example in rule.not_match:
        if rule.applies(tool, example):
            raise InputError(f"{rule.id}: matches {shlex.join(example)!r}, which it must not", where=rule.origin)
