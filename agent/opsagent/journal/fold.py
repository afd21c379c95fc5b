"""From events to state. Live and on resume it is the same function, so they cannot disagree.

`call.intent` may carry `bind`, the name under which its result can be referred to; `note` with `bind` and `value` binds a
value without a call (a call that was skipped binds null).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from opsagent.call import Call
from opsagent.journal.format import damaged
from opsagent.journal.state import CallState, RunState, StepState
from opsagent.protocols import Event


def seconds_between(earlier: str, later: str) -> float:
    """Seconds from one event's time to another's; 0 when the wall clock went back or cannot be read."""
    try:
        return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
    except ValueError:
        return 0.0


def fold(events: Iterable[Event], state: RunState | None = None) -> RunState:
    """The state after these events. Raises TranscriptDamaged for one that no opsagent can have written."""
    state = RunState() if state is None else state
    for event in events:
        try:
            apply(state, event)
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # a whole line, but of a stranger's making
            raise damaged(f"is no {event.type} that can be read", event.seq, "events.jsonl") from error
    return state


def apply(state: RunState, event: Event) -> None:
    """Go on by one event. An unknown type, or data that lacks something, changes only the counters."""
    state.seq = event.seq
    if not state.first_ts:
        state.first_ts = event.ts
    elif event.type == "run.resumed":
        state.usage.away_s += seconds_between(state.ended_ts or state.last_ts, event.ts)
    state.last_ts = event.ts
    if not state.ended_ts or event.type == "run.resumed":
        state.usage.wall_s = max(0.0, seconds_between(state.first_ts, event.ts) - state.usage.away_s)
    step = _HANDLERS.get(event.type)
    if step is not None:
        step(state, event)


def _run_started(state: RunState, event: Event) -> None:
    state.started = event.data
    state.run = str(event.data.get("run", ""))
    state.policy = str(event.data.get("policy") or "")
    state.params = dict(event.data.get("params") or {})


def _run_resumed(state: RunState, event: Event) -> None:
    state.resumes += 1
    state.status, state.exit_code, state.waiting_since, state.ended_ts = "", None, "", ""


def _run_finished(state: RunState, event: Event) -> None:
    state.status = str(event.data.get("status", ""))
    state.exit_code = event.data.get("exit_code")
    state.ended_ts = event.ts
    _stop_waiting(state, event)


def _step_entered(state: RunState, event: Event) -> None:
    state.step = str(event.data.get("step", ""))
    step = state.steps.setdefault(state.step, StepState(state.step))
    step.entered += 1
    step.left, step.checks, step.calls = False, {}, []


def _step_check(state: RunState, event: Event) -> None:
    name = str(event.data.get("step", ""))
    step = state.steps.setdefault(name, StepState(name))
    step.checks[str(event.data.get("expr", ""))] = event.data.get("ok") is True


def _step_left(state: RunState, event: Event) -> None:
    name = str(event.data.get("step", ""))
    state.steps.setdefault(name, StepState(name)).left = True
    if state.step == name:
        state.step = ""


def _call_of(state: RunState, event: Event) -> CallState | None:
    call = state.calls.get(str(event.data.get("call", "")))
    if call is not None:
        call.events[event.type] = event.id
    return call


def _intent(state: RunState, event: Event) -> None:
    call = Call.model_validate(event.data["call"])
    known = CallState(call, bind=str(event.data.get("bind") or ""), verdict=dict(event.data.get("verdict") or {}))
    known.events[event.type] = event.id
    replaced = state.calls.get(str(event.data.get("instead_of", "")))
    if replaced is not None:
        replaced.status = "refused"
    if call.id not in state.calls and call.step in state.steps:
        state.steps[call.step].calls.append(call.id)
    state.calls[call.id] = known


def _approval_requested(state: RunState, event: Event) -> None:
    call = _call_of(state, event)
    if call is not None:
        call.status = "waiting"
        call.rollback = str(event.data.get("rollback") or "")
        state.waiting_since = event.ts


def _stop_waiting(state: RunState, event: Event) -> None:
    if state.waiting_since:
        state.usage.waiting_s += seconds_between(state.waiting_since, event.ts)
        state.waiting_since = ""


def _approval_decided(state: RunState, event: Event) -> None:
    _stop_waiting(state, event)
    call = _call_of(state, event)
    if call is None:
        return
    call.decision = event.data
    answer = event.data.get("answer")
    if answer == "approve":
        call.status = "approved"
    elif answer in ("reject", "stop", "change"):
        changed = answer == "change" and isinstance(event.data.get("args"), dict)
        call.status = "changed" if changed else "refused"
        state.usage.denials += 1


def _call_started(state: RunState, event: Event) -> None:
    call = _call_of(state, event)
    if call is not None:
        call.status = "started"
        state.usage.calls += 1


def _bind(state: RunState, name: str, value: Any, event: Event) -> None:
    if name:
        state.bindings[name] = value
        state.bound_by[name] = event.id


def _call_finished(state: RunState, event: Event) -> None:
    call = _call_of(state, event)
    if call is not None:
        call.status, call.result, call.ok = "finished", event.data.get("result"), event.data.get("ok") is True
        call.duration_s = float(event.data.get("duration_s") or 0.0)
        _bind(state, call.bind, call.result, event)


def _call_failed(state: RunState, event: Event) -> None:
    call = _call_of(state, event)
    if call is not None:
        call.status, call.ok = "failed", False
        call.error = {key: event.data.get(key) for key in ("what", "where", "hint", "exit_code")}


def _call_unknown(state: RunState, event: Event) -> None:
    call = _call_of(state, event)
    if call is not None:
        call.status = "unknown"


def _call_reconciled(state: RunState, event: Event) -> None:
    call = _call_of(state, event)
    if call is None:
        return
    happened = event.data.get("happened")
    if happened in (True, "yes") and isinstance(event.data.get("result"), dict):
        call.status, call.ok, call.result = "finished", event.data.get("ok", True) is True, event.data["result"]
        _bind(state, call.bind, call.result, event)
    elif happened in (False, "no"):
        call.status = "undone"
    # Without its result it stays open until call.finished brings it: a death in between must probe again.


def _model_request(state: RunState, event: Event) -> None:
    keep = event.data.get("keep")
    new = event.data.get("new")
    if isinstance(keep, int) and isinstance(new, list):
        state.messages = [*state.messages[:keep], *new]


def _add(total: int | None, more: Any) -> int | None:
    return None if total is None or not isinstance(more, int) else total + more


def _model_response(state: RunState, event: Event) -> None:
    usage, tokens = state.usage, event.data.get("usage") or {}
    usage.turns += 1
    if event.data.get("model") != "autopilot":
        usage.tokens_in = _add(usage.tokens_in, tokens.get("prompt_tokens"))
        usage.tokens_out = _add(usage.tokens_out, tokens.get("completion_tokens"))
    message = event.data.get("message")
    if isinstance(message, dict):
        state.messages = [*state.messages, message]


def _count(name: str) -> Callable[[RunState, Event], None]:
    def count(state: RunState, _event: Event) -> None:
        setattr(state.usage, name, getattr(state.usage, name) + 1)

    return count


def _remedy(state: RunState, event: Event) -> None:
    state.remedies.append(event.data)
    name = str(event.data.get("step", ""))
    state.steps.setdefault(name, StepState(name)).remedies.append(str(event.data.get("cause", "")))


def _param(state: RunState, event: Event) -> None:
    if "name" in event.data:
        state.params[str(event.data["name"])] = event.data.get("value")


def _drift(state: RunState, event: Event) -> None:
    state.drift.append(event.data)
    if event.data.get("what") == "the policy":
        state.policy = str(event.data.get("sha256") or "")


def _redaction(state: RunState, event: Event) -> None:
    for rule, count in (event.data.get("rules") or {}).items():
        state.redactions[rule] = state.redactions.get(rule, 0) + int(count)


def _snapshot(state: RunState, event: Event) -> None:
    state.snapshots[f"{event.data.get('host', '')}/{event.data.get('phase', '')}"] = event.data.get("facts") or {}


def _bystanders(state: RunState, event: Event) -> None:
    host, data = str(event.data.get("host", "")), event.data
    if isinstance(data.get("seen"), list):
        state.bystanders[host] = data["seen"]
    if data.get("lost"):
        state.lost.append({**data, "event": event.id})
    gone = {each.get("name") for key in ("lost", "ended") for each in data.get(key) or []}
    state.bystanders[host] = [each for each in state.bystanders.get(host, []) if each.get("name") not in gone]


def _note(state: RunState, event: Event) -> None:
    if event.data.get("bind"):
        _bind(state, str(event.data["bind"]), event.data.get("value"), event)


_HANDLERS: dict[str, Callable[[RunState, Event], None]] = {
    "run.started": _run_started,
    "run.resumed": _run_resumed,
    "run.finished": _run_finished,
    "step.entered": _step_entered,
    "step.check": _step_check,
    "step.left": _step_left,
    "model.request": _model_request,
    "model.response": _model_response,
    "model.retry": _count("retries"),
    "model.rejected": _count("rejected"),
    "call.intent": _intent,
    "approval.requested": _approval_requested,
    "approval.decided": _approval_decided,
    "call.started": _call_started,
    "call.finished": _call_finished,
    "call.failed": _call_failed,
    "call.unknown": _call_unknown,
    "call.reconciled": _call_reconciled,
    "remedy.applied": _remedy,
    "param.changed": _param,
    "drift.accepted": _drift,
    "redaction.applied": _redaction,
    "snapshot": _snapshot,
    "bystanders": _bystanders,
    "note": _note,
}
