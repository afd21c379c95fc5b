"""Whether a scenario ended as it should: expressions over the state of the hosts and the report, never over prose.

[oracle]
status = "verified"                     # of the report, if there is one
served = [{host = "gpu1", port = 30000, max_running_requests = 4, context_len = 8192}]   # at least so much
alive  = [{host = "kpro6", port = 30000}]
once   = ["reboots"]                    # counters that are never above 1 on a host, and 1 somewhere
never  = ["launches"]                   # counters that are 0
expect = ["report.weight_loads == 1"]   # CEL over `report` and `hosts`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opsagent_lab import facts
from opsagent_lab.world import World

KEYS = frozenset({"outcome", "status", "served", "alive", "once", "never", "expect"})
LIMITS = ("max_running_requests", "max_total_num_tokens", "context_len")


def check(world: World, oracle: Mapping[str, Any], report: Mapping[str, Any] | None = None) -> list[str]:
    """The expectations that do not hold, in words; empty when all is well. Without a report only the hosts are looked at."""
    state = facts.hosts(world)
    failed = [f"unknown oracle key {key!r}" for key in oracle if key not in KEYS]
    failed += [text for text in _servers(state, oracle) if text]
    failed += list(_counters(state, oracle))
    if report is not None and "status" in oracle and report.get("status") != oracle["status"]:
        failed.append(f"the report's status is {report.get('status')!r}, not {oracle['status']!r}")
    bindings = {"hosts": state, "report": dict(report or {})}
    failed += [text for text in (_expect(str(e), bindings, report is None) for e in oracle.get("expect", [])) if text]
    return failed + [f"a lab program fell over: {bug.splitlines()[0]}" for bug in world.bugs]


def _servers(state: Mapping[str, Any], oracle: Mapping[str, Any]) -> Iterator[str]:
    for wish in [*oracle.get("served", []), *oracle.get("alive", [])]:
        place = f"{wish['host']}:{wish['port']}"
        server = state.get(wish["host"], {}).get("servers", {}).get(str(wish["port"]))
        if server is None:
            yield f"nothing listens on {place}"
            continue
        for key, want in wish.items():
            have = server.get(key)
            if key in LIMITS and (have is None or have < want):
                yield f"{place}: {key} is {have}, not at least {want}"
            elif key not in (*LIMITS, "host", "port") and have != want:
                yield f"{place}: {key} is {have!r}, not {want!r}"


def _counters(state: Mapping[str, Any], oracle: Mapping[str, Any]) -> Iterator[str]:
    for name in oracle.get("once", []):
        most = max((host["counters"].get(name, 0) for host in state.values()), default=0)
        if most != 1:
            yield f"{name} happened {most} times, not once"
    for name in oracle.get("never", []):
        total = sum(host["counters"].get(name, 0) for host in state.values())
        if total:
            yield f"{name} happened {total} times, not never"


def _expect(text: str, bindings: dict[str, Any], hosts_only: bool) -> str:
    """'' when the expression is true, else why not."""
    import celpy
    from celpy.adapter import json_to_cel
    from celpy.celparser import CELParseError
    from celpy.evaluation import CELEvalError

    if hosts_only and "report" in text:
        return ""
    environment = celpy.Environment()
    try:
        program = environment.program(environment.compile(text))
        value = program.evaluate({name: json_to_cel(value) for name, value in bindings.items()})
    except CELParseError as problem:
        return f"not a CEL expression: {text} ({problem})"
    except (CELEvalError, TypeError, KeyError, ValueError) as problem:
        return f"{text}: {problem.args[0] if problem.args else problem}"
    return "" if bool(value) else f"not so: {text}"
