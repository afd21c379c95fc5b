"""A run as lines for people: what was tried, what came of it, and the event behind each line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from opsagent.fence import neutral
from opsagent.journal.format import EVENT_TYPES
from opsagent.protocols import Event

Style = Literal["", "step", "good", "bad", "ask", "dim"]
STYLES: dict[Style, str] = {"step": "bold", "good": "green", "bad": "red", "ask": "yellow", "dim": "dim", "": ""}
"""How a terminal shows each, in rich's words."""
Kind = Literal["calls", "model", "checks", "approvals", "steps", "notes"]
KINDS: tuple[Kind, ...] = ("calls", "model", "checks", "approvals", "steps", "notes")


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the event that it comes from, how deep it stands, what it says."""

    event: str
    depth: int
    text: str
    style: Style = ""


@dataclass
class Transcript:
    """Turns events into lines, in order."""

    turns: bool = True
    """Whether the model's words are shown (the autopilot's never are: it says only what the runbook says)."""
    everything: bool = False
    """Whether every event gets its line, the dull ones too."""
    _calls: dict[str, str] = field(default_factory=dict)
    _tiers: dict[str, str] = field(default_factory=dict)

    def lines(self, events: Iterable[Event]) -> Iterator[Line]:
        for event in events:
            line = self.line(event)
            if line is not None:
                yield line

    def line(self, event: Event) -> Line | None:
        """The line of the next event, or None. An event that lacks what we write gets its type: it may be a stranger's."""
        handler = _HANDLERS.get(event.type)
        try:
            made = None if handler is None else handler(self, event.data)
        except (KeyError, TypeError, ValueError, AttributeError):
            made = 1, f"{event.type}, which cannot be read", "bad"
        if made is None and self.everything:
            made = 1, _dull(event), "dim"
        return None if made is None else Line(event.id, made[0], one_line(made[1]), made[2])

    def name(self, data: dict[str, Any]) -> str:
        return self._calls.get(str(data.get("call")), str(data.get("call")))


def kind_of(event_type: str) -> Kind:
    """The group of events that a reader can ask for."""
    head = event_type.partition(".")[0]
    if event_type == "step.check":
        return "checks"
    groups: dict[str, Kind] = {
        "call": "calls", "remedy": "steps", "approval": "approvals", "model": "model", "context": "model",
        "step": "steps", "run": "steps", "param": "steps", "error": "steps", "budget": "steps",
    }  # fmt: skip
    return groups.get(head, "notes")


def _dull(event: Event) -> str:
    """A line for an event that says nothing on a short timeline."""
    if event.type == "model.request":
        sent = event.data.get("new")
        count = len(sent) if isinstance(sent, list) else 0
        return f"asks {event.data.get('model', 'the model')}" + (f": {count} new messages" if count else "")
    if event.type == "model.response":
        return f"answers: {_words(event.data) or _wanted(event.data) or 'nothing'}"
    if event.type == "call.started":
        return "begins"
    if event.type == "approval.decided":
        return _answer(event.data)
    if event.type == "call.progress":
        return str(event.data.get("text") or json.dumps(event.data, ensure_ascii=False))
    return event.type if event.type in EVENT_TYPES else f"{event.type}, which this version does not know"


Made = tuple[int, str, Style] | None


def one_line(text: str, most: int = 400) -> str:
    """Text that can be printed on one line and deceives nobody."""
    flat = " ".join(neutral(text[: 4 * most]).split())
    return flat if len(flat) <= most else flat[:most] + "…"


def header(events: Iterable[Event], status: str) -> str:
    """Who, where and how it ended, on one line."""
    started = next((e.data for e in events if e.type == "run.started"), {})
    hosts = ", ".join(f"{role}={name}" for role, name in (started.get("hosts") or {}).items() if name)
    model = str(started.get("model") or "")
    parts = [
        f"run {started.get('run', '?')}",
        str((started.get("runbook") or {}).get("name", "")),
        hosts,
        "autopilot (no LLM)" if model == "autopilot" else model,
        f'SIMULATED lab "{started.get("lab", "")}"' if started.get("simulated") else "",
        "dry run" if started.get("dry") else "",
        status,
    ]
    return one_line(" · ".join(part for part in parts if part))


def _started(_t: Transcript, data: dict[str, Any]) -> Made:
    params = ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in (data.get("params") or {}).items()
    )
    return 0, f"started with {params}" if params else "started", "dim"


def _resumed(_t: Transcript, data: dict[str, Any]) -> Made:
    return 0, "resumed", "step"


def _finished(_t: Transcript, data: dict[str, Any]) -> Made:
    good = data.get("exit_code") == 0
    why = (data.get("failed") or {}).get("text", "") if isinstance(data.get("failed"), dict) else ""
    return (
        0,
        f"ended: {data.get('status')} (exit {data.get('exit_code')}){': ' + why if why else ''}",
        "good" if good else "bad",
    )


def _entered(_t: Transcript, data: dict[str, Any]) -> Made:
    return 0, f"▶ {data.get('step')}: {data.get('title', '')}{' (again)' if data.get('again') else ''}", "step"


def _check(_t: Transcript, data: dict[str, Any]) -> Made:
    seen = ", ".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in (data.get("values") or {}).items()
    )
    if data.get("ok"):
        return 1, f"✔ {data.get('expr')}", "dim"
    return 1, f"✘ {data.get('expr')}{'   (' + seen + ')' if seen else ''}", "bad"


def _left(_t: Transcript, data: dict[str, Any]) -> Made:
    return 0, f"✔ {data.get('step')}", "good"


def _intent(t: Transcript, data: dict[str, Any]) -> Made:
    call, verdict = data["call"], data.get("verdict") or {}
    where = f" on {call['host']}" if call.get("host") else ""
    t._calls[call["id"]] = f"{call['id']} {call['tool']}"
    reasons = "; ".join(reason.get("text", "") for reason in verdict.get("reasons") or [] if isinstance(reason, dict))
    tier = verdict.get("tier", "?")
    t._tiers[call["id"]] = tier
    asked = f" · {reasons}" if reasons and tier not in ("R0",) else ""
    return 1, f"{call['id']} {call['tool']}{where} [{tier}] {_brief(call['args'])}{asked}", ""


def _brief(args: dict[str, Any]) -> str:
    """The arguments in short: long values by their size."""
    shown = []
    for name, value in args.items():
        if value in (None, "", [], {}):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = "{…}" if isinstance(value, dict) and len(text) > 80 else text
        shown.append(f"{name}={text if len(text) <= 80 else text[:60] + '…'}")
    return " ".join(shown)


def _asked(t: Transcript, data: dict[str, Any]) -> Made:
    return 2, f"asks for approval ({data.get('tier', '')})", "ask"


def _answer(data: dict[str, Any]) -> str:
    """`approved by operator`; what the answer covers, when it is more than this call."""
    said = {"approve": "approved", "reject": "refused", "stop": "stopped", "change": "changed"}
    answer, scope = str(data.get("answer")), str(data.get("scope") or "once")
    if answer == "wait":
        return "waits: nobody could be asked"
    return f"{said.get(answer, answer)} by {data.get('by')}{'' if scope == 'once' else f', for this {scope}'}"


def _decided(t: Transcript, data: dict[str, Any]) -> Made:
    if data.get("answer") == "approve" and t._tiers.get(str(data.get("call"))) == "R0":
        return None
    reason = f": {data['reason']}" if data.get("reason") else ""
    return 2, _answer(data) + reason, "ask"


def _call_finished(_t: Transcript, data: dict[str, Any]) -> Made:
    """A call that worked may have found a failure: then it has a cause, and is one of the things that went wrong."""
    result = data.get("result") or {}
    cause, ok = str(result.get("cause") or ""), bool(data.get("ok"))
    said = str(result.get("summary") or cause or ("done" if ok else "failed"))
    found = f" · {cause}" if cause not in said else ""
    kept = len(data.get("output") or ())
    blobs = f", {kept} output{'s' if kept > 1 else ''} kept" if kept else ""
    took = f"{float(data.get('duration_s') or 0):.1f} s"
    return 2, f"{'→' if ok else '✘'} {said}{found} ({took}{blobs})", "bad" if cause or not ok else ""


def _call_failed(_t: Transcript, data: dict[str, Any]) -> Made:
    return 2, f"✘ {data.get('what')}{' – ' + str(data['hint']) if data.get('hint') else ''}", "bad"


def _unknown(_t: Transcript, data: dict[str, Any]) -> Made:
    return 2, f"? outcome unknown: {data.get('what', '')}", "bad"


def _reconciled(_t: Transcript, data: dict[str, Any]) -> Made:
    return 2, f"looked: did it happen? {data.get('happened')}", "ask"


def _remedy(_t: Transcript, data: dict[str, Any]) -> Made:
    if data.get("refused"):
        return 1, f"⟲ remedy for {data.get('cause')} ({data.get('source', 'runbook')}): refused", "ask"
    change = json.dumps(data.get("change") or {}, ensure_ascii=False)
    return (
        1,
        f"⟲ remedy for {data.get('cause')} ({data.get('source', 'runbook')}): {change} → {data.get('next', '')}",
        "ask",
    )


def _param(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"{data.get('name')} is now {json.dumps(data.get('value'), ensure_ascii=False)}", "dim"


def _words(data: dict[str, Any]) -> str:
    """What the model said: its answer, or that it only thought."""
    message = data.get("message")
    text = message.get("content") if isinstance(message, dict) else ""
    thought = data.get("reasoning")
    if text or not thought:
        return str(text or "")
    return f"(thought: {len(str(thought)):,} characters)"


def _wanted(data: dict[str, Any]) -> str:
    calls = data.get("calls")
    return ", ".join(str(call.get("name")) for call in calls) if isinstance(calls, list) else ""


def _response(t: Transcript, data: dict[str, Any]) -> Made:
    text = _words(data)
    return (1, f"· {text}", "dim") if t.turns and text and data.get("model") != "autopilot" else None


def _retry(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"the model is asked again in {data.get('wait_s', 0)} s: {data.get('why', '')}", "dim"


def _rejected(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"✘ unusable: {data.get('what', '')}", "bad"


def _snapshot(_t: Transcript, data: dict[str, Any]) -> Made:
    error = f": {data['error']}" if data.get("error") else ""
    return 1, f"snapshot of {data.get('host')} ({data.get('phase')}){error}", "bad" if error else "dim"


def _redaction(_t: Transcript, data: dict[str, Any]) -> Made:
    rules = data.get("rules") or {}
    count = sum(int(number) for number in rules.values())
    return 1, f"{count} secret{'' if count == 1 else 's'} replaced in {data.get('by', '?')}: {', '.join(rules)}", "dim"


def _compacted(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"conversation shortened by {data.get('dropped', '?')} messages", "dim"


def _note(_t: Transcript, data: dict[str, Any]) -> Made:
    if data.get("why"):
        return 1, f"note: {data['why']}", "dim"
    if data.get("kind") == "torn-line":
        return 1, f"line {data.get('line')} was torn ({data.get('bytes')} bytes) and was cut off", "dim"
    if "finish" in data:
        return 1, "the report is handed in", "dim"
    return 1, f"note: {json.dumps(data, ensure_ascii=False)}", "dim"


def _trouble(word: str) -> Callable[[Transcript, dict[str, Any]], Made]:
    def made(_t: Transcript, data: dict[str, Any]) -> Made:
        where = f" ({data['where']})" if data.get("where") else ""
        hint = f" – {data['hint']}" if data.get("hint") else ""
        return 1, f"✘ {word}: {data.get('what', '')}{where}{hint}", "bad"

    return made


def _drift(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"drift accepted: {data.get('what') or json.dumps(data, ensure_ascii=False)}", "ask"


def _locked(_t: Transcript, data: dict[str, Any]) -> Made:
    if data.get("error"):
        return 1, f"✘ {data.get('host')} is not locked: {data['error']}", "bad"
    broke = f", taken from {data['broke']}" if data.get("broke") else ""
    return 1, f"{data.get('host')} is locked against other runs until {data.get('until', '?')}{broke}", "dim"


def _released(_t: Transcript, data: dict[str, Any]) -> Made:
    error = f" could not be: {data['error']}" if data.get("error") else ""
    return 1, f"lock on {data.get('host')} released{error}", "bad" if error else "dim"


def _bystanders(_t: Transcript, data: dict[str, Any]) -> Made:
    """Servers of others: how they were before, or that one is gone."""
    host, lost = data.get("host"), data.get("lost")
    if data.get("error"):
        return 1, f"✘ servers of others on {host} cannot be seen: {data['error']}", "bad"
    if lost:
        return 1, f"✘ servers of others on {host} are gone: {json.dumps(lost, ensure_ascii=False)}", "bad"
    if data.get("ended"):
        return 1, f"ended on {host}, as the call said: {json.dumps(data['ended'], ensure_ascii=False)}", "ask"
    count = len(data.get("seen") or ())
    return 1, f"{count} server{'' if count == 1 else 's'} of others on {host}", "dim"


_HANDLERS: dict[str, Callable[[Transcript, dict[str, Any]], Made]] = {
    "run.started": _started,
    "run.resumed": _resumed,
    "run.finished": _finished,
    "step.entered": _entered,
    "step.check": _check,
    "step.left": _left,
    "call.intent": _intent,
    "approval.requested": _asked,
    "approval.decided": _decided,
    "call.finished": _call_finished,
    "call.failed": _call_failed,
    "call.unknown": _unknown,
    "call.reconciled": _reconciled,
    "remedy.applied": _remedy,
    "param.changed": _param,
    "model.response": _response,
    "model.retry": _retry,
    "model.rejected": _rejected,
    "snapshot": _snapshot,
    "redaction.applied": _redaction,
    "context.compacted": _compacted,
    "drift.accepted": _drift,
    "budget.exceeded": _trouble("budget exceeded"),
    "error": _trouble("error"),
    "host.locked": _locked,
    "host.released": _released,
    "bystanders": _bystanders,
    "note": _note,
}
