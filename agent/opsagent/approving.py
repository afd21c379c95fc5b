"""The gate of a run: policy layers, the mode of the place and the terminal, and who is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsagent.call import Call, canonical
from opsagent.gate import Gate, Mode, Policy
from opsagent.gate.approvals import Grant, expired, read_file
from opsagent.gate.facts import FactSource, HostFacts, NoFacts
from opsagent.gate.preview import diff_of
from opsagent.journal.state import RunState
from opsagent.protocols import Approver
from opsagent.runbook.model import Runbook

if TYPE_CHECKING:
    from opsagent.session import Wish


def gate_for(
    wish: Wish, run_id: str, state: Callable[[], RunState], *, safe: Callable[[Any], Any] = lambda value: value
) -> Gate:
    """The gate that a run goes through.

    On the lab the scenario's approver answers, with or without a terminal, unless `--approve` says otherwise: then the
    lab behaves like a real host.
    """
    places = wish.places
    mode, approver = _mode(wish)

    def facts(call: Call) -> FactSource:
        return HostFacts(places.open(call.role)) if call.role and call.host else NoFacts()

    policy = policy_of(wish.runbook, wish)
    return Gate(
        policy=policy,
        mode=mode,
        approver=approver,
        facts=facts,
        run=run_id,
        owned=lambda host: owned_paths(state(), host),
        written=written_hosts(state()),
        grants=grants_of(state(), fingerprint(policy)),
        safe=safe,
        preview=lambda call: diff_of(call, places.open(call.role)) if call.role and call.host else "",
        pre_approved=read_file(Path(wish.approve_file)) if wish.approve_file else frozenset(),
        used=used_up(state()),
    )


def asks_person(wish: Wish) -> bool:
    """Whether a person at the terminal answers what needs approval."""
    if wish.approve in ("never", "declared") or (wish.places.simulated and not wish.approve):
        return False
    return wish.approve == "ask" or wish.interactive


def _mode(wish: Wish) -> tuple[Mode, Approver | None]:
    if wish.approve == "never":
        return "never", None
    if wish.places.simulated and not wish.approve:
        approver: Approver = wish.places.approver
        return "ask", approver
    if not asks_person(wish):
        return "declared", None
    from opsagent.gate.prompt import TerminalApprover
    from opsagent.live_prompt import ask

    return "ask", TerminalApprover(
        labels={name: wish.places.inventory.label(name) for name in wish.places.roles.values()}, read=ask
    )


def policy_of(runbook: Runbook, wish: Wish) -> Policy:
    """Administrator, user and project layers, tightened by what the runbook declares."""
    from opsagent.gate.layers import for_run

    caps = {name: entry.tier_cap for name, entry in wish.places.inventory.entries.items() if entry.tier_cap}
    return for_run(runbook, tier_caps=caps)


def fingerprint(policy: Policy) -> str:
    """sha256 of a policy."""
    return hashlib.sha256(canonical(asdict(policy)).encode()).hexdigest()


def grants_of(state: RunState, policy: str) -> list[Grant]:
    """What a person allowed beyond one call, before this process: folded from the decisions, under the same policy only."""
    found = []
    for each in state.calls.values():
        decision, tier = each.decision, each.verdict.get("tier")
        if expired(decision, datetime.now(UTC)):
            continue
        wide = decision.get("answer") == "approve" and decision.get("scope") in ("step", "rule")
        if wide and decision.get("policy") == policy and tier in ("R1", "R2"):
            rules = tuple(sorted({str(reason["rule"]) for reason in each.verdict.get("reasons", [])}))
            call = each.call
            found.append(
                Grant(decision["scope"], call.host, call.tool, rules, str(tier), canonical(call.args), call.step)
            )
    return found


def used_up(state: RunState) -> set[str]:
    """Hashes of the pre-approval file that this run has used, before this process: each of them holds once."""
    decisions = [each.decision for each in state.calls.values()]
    return {str(each.get("binding")) for each in decisions if each.get("by") == "approve-file"}


def written_hosts(state: RunState) -> set[str]:
    """Hosts on which a call above R0 was begun, in this run and before its resume."""
    calls = state.calls.values()
    return {
        each.call.host
        for each in calls
        if each.call.host and "call.started" in each.events and each.verdict.get("tier") != "R0"
    }


def owned_paths(state: RunState, host: str) -> frozenset[str]:
    """Paths that this run made on a host, by the results of its own calls."""
    found = set()
    for call in state.calls.values():
        result = call.result or {}
        if call.call.host == host and call.ok and call.call.tool in ("write_file", "install_env", "download_model"):
            made = result.get("created", True)
            path = result.get("path") or result.get("venv")
            if made and isinstance(path, str):
                found.add(path)
    return frozenset(found)
