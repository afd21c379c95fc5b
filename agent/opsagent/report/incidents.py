"""What went wrong on the way, by cause: who found it, what it cost in weight loads, which remedy ended it."""

from __future__ import annotations

from typing import Any

from opsagent.journal.state import CallState
from opsagent.report.evidence import Evidence
from opsagent.report.model import Incident
from opsagent_tools import bystanders

FOUND_BY = {"estimate_vram": "planner", "preflight": "preflight", "launch_sglang": "launch", "tail_log": "log",
            "curl_test": "verification", "download_model": "download", "install_env": "install"}  # fmt: skip

LOST = "bystander-lost"
"""No cause of a failed launch: a server of somebody else that did not survive the run."""


def incidents(seen: Evidence) -> list[Incident]:
    """One incident per cause, with every event that shows it: predicted, confirmed, remedied."""
    found: dict[str, Incident] = {}
    for call in seen.state.calls.values():
        cause = _cause(call)
        if not cause:
            continue
        event = call.events.get("call.finished") or call.events.get("call.failed") or ""
        incident = found.setdefault(
            cause, Incident(cause=cause, found_by=FOUND_BY.get(call.call.tool, call.call.tool), resolved=False)
        )
        incident.what = incident.what or _words(call)
        incident.evidence += [event] if event else []
        if call.call.tool == "launch_sglang":
            incident.weight_loads_lost += bool((call.result or {}).get("weights_loaded"))
    _remedies(seen, found)
    _overcome(seen, found)
    _bystanders(seen, found)
    return list(found.values())


def _cause(call: CallState) -> str:
    result = call.result or {}
    return str(result.get("cause") or "") if call.status == "finished" else ""


def _words(call: CallState) -> str:
    result: dict[str, Any] = call.result or {}
    text = str(result.get("words") or result.get("summary") or "")
    return text if len(text) <= 240 else text[:239] + "…"


def _bystanders(seen: Evidence, found: dict[str, Incident]) -> None:
    """Servers of others that were gone after a write: nobody here can say why, and only a person can mend it."""
    for each in seen.state.lost:
        what = f"a server of somebody else on {each['host']}: " + "; ".join(
            f"{bystanders.words(one)}, {one.get('why')}" for one in each["lost"]
        )
        incident = found.setdefault(LOST, Incident(cause=LOST, found_by="watch", resolved=False))
        incident.what = f"{incident.what}; {what}" if incident.what else what
        incident.evidence.append(each["event"])


def _remedies(seen: Evidence, found: dict[str, Incident]) -> None:
    for event in seen.events:
        if event.type == "remedy.applied" and event.data.get("cause") in found and not event.data.get("refused"):
            incident = found[event.data["cause"]]
            incident.remedy = {**incident.remedy, **(event.data.get("change") or {})}
            shown = [_seq(call) for call in seen.state.calls.values() if _cause(call) == incident.cause]
            incident.evidence.append(event.id)
            incident.resolved = event.seq > max(shown)  # what is shown again after its remedy is not over


def _overcome(seen: Evidence, found: dict[str, Incident]) -> None:
    """A cause that the same tool, asked again on the same host, no longer shows is over even without a remedy of the runbook
    (but not when a rollback has taken back the work that showed it).
    """
    for cause, incident in found.items():
        shown = [call for call in seen.state.calls.values() if _cause(call) == cause]
        last = shown[-1]
        later = [
            c for c in seen.calls.get(last.call.tool, [])
            if _number(c) > _number(last) and not _cause(c) and c.call.host == last.call.host and not c.call.rollback
        ]  # fmt: skip
        if last.call.tool == "preflight":  # what stood in the way is gone when a later launch there succeeded
            later += [c for c in seen.calls.get("launch_sglang", [])
                      if c.ok and c.call.host == last.call.host and _number(c) > _number(last)]  # fmt: skip
        incident.resolved = incident.resolved or bool(later)
        proposal = (last.result or {}).get("proposal") or {}
        if (
            not incident.resolved
            and last.call.tool == "estimate_vram"
            and proposal
            and seen.last("launch_sglang", ok=True)
        ):
            incident.resolved, incident.remedy = True, proposal.get("change") or {}


def _seq(call: CallState) -> int:
    """The number of the event that ended a call."""
    event = call.events.get("call.finished") or call.events.get("call.failed") or "e0"
    return int(event.removeprefix("e"))


def _number(call: CallState) -> int:
    digits = call.call.id.lstrip("c")
    return int(digits) if digits.isdigit() else 0
