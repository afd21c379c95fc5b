"""A run as lines for people: what was tried, what came of it, and the event behind each line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from opsagent.fence import neutral
from opsagent.protocols import Event

Style = Literal["", "step", "good", "bad", "ask", "dim"]


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
    """Whether the model's words are shown."""
    _calls: dict[str, str] = field(default_factory=dict)
    _tiers: dict[str, str] = field(default_factory=dict)

    def lines(self, events: Iterable[Event]) -> Iterator[Line]:
        for event in events:
            handler = _HANDLERS.get(event.type)
            if handler is None:
                continue
            line = handler(self, event.data)
            if line is not None:
                depth, text, style = line
                yield Line(event.id, depth, one_line(text), style)

    def name(self, data: dict[str, Any]) -> str:
        return self._calls.get(str(data.get("call")), str(data.get("call")))


Made = tuple[int, str, Style] | None


def one_line(text: str, most: int = 400) -> str:
    """Text that can be printed on one line and deceives nobody."""
    flat = " ".join(neutral(text).split())
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
    asked = f"   {reasons}" if reasons and tier not in ("R0",) else ""
    return 1, f"{call['id']} {call['tool']}{where} [{tier}] {_brief(call['args'])}{asked}", ""


def _brief(args: dict[str, Any]) -> str:
    """The arguments in short: long values by their size."""
    shown = []
    for name, value in args.items():
        if value in (None, "", [], {}):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown.append(f"{name}={text if len(text) <= 80 else text[:60] + '…'}")
    return " ".join(shown)


def _asked(t: Transcript, data: dict[str, Any]) -> Made:
    return 2, f"asks for approval ({data.get('tier', '')})", "ask"


def _decided(t: Transcript, data: dict[str, Any]) -> Made:
    if data.get("answer") == "approve" and t._tiers.get(str(data.get("call"))) == "R0":
        return None
    reason = f": {data['reason']}" if data.get("reason") else ""
    return 2, f"{data.get('answer')} by {data.get('by')}{reason}", "ask"


def _call_finished(_t: Transcript, data: dict[str, Any]) -> Made:
    result = data.get("result") or {}
    said = result.get("summary") or result.get("cause") or ("done" if data.get("ok") else "failed")
    blobs = f", {len(data['output'])} outputs kept" if data.get("output") else ""
    took = f"{float(data.get('duration_s') or 0):.1f} s"
    return 2, f"{'→' if data.get('ok') else '✘'} {said} ({took}{blobs})", "" if data.get("ok") else "bad"


def _call_failed(_t: Transcript, data: dict[str, Any]) -> Made:
    return 2, f"✘ {data.get('what')}{' – ' + str(data['hint']) if data.get('hint') else ''}", "bad"


def _unknown(_t: Transcript, data: dict[str, Any]) -> Made:
    return 2, f"? outcome unknown: {data.get('what', '')}", "bad"


def _reconciled(_t: Transcript, data: dict[str, Any]) -> Made:
    return 2, f"looked: did it happen? {data.get('happened')}", "ask"


def _remedy(_t: Transcript, data: dict[str, Any]) -> Made:
    change = json.dumps(data.get("change") or {}, ensure_ascii=False)
    return (
        1,
        f"⟲ remedy for {data.get('cause')} ({data.get('source', 'runbook')}): {change} → {data.get('next', '')}",
        "ask",
    )


def _param(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"{data.get('name')} is now {json.dumps(data.get('value'), ensure_ascii=False)}", "dim"


def _response(t: Transcript, data: dict[str, Any]) -> Made:
    message = data.get("message")
    text = message.get("content") if isinstance(message, dict) else ""
    return (1, f"· {text}", "dim") if t.turns and text else None


def _retry(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"the model is asked again in {data.get('wait_s', 0)} s: {data.get('why', '')}", "dim"


def _rejected(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"✘ unusable: {data.get('what', '')}", "bad"


def _plain(word: str, style: Style = "dim") -> Callable[[Transcript, dict[str, Any]], Made]:
    def made(_t: Transcript, data: dict[str, Any]) -> Made:
        return 1, f"{word}: {json.dumps(data, ensure_ascii=False)}", style

    return made


def _snapshot(_t: Transcript, data: dict[str, Any]) -> Made:
    return 1, f"snapshot of {data.get('host')} ({data.get('phase')})", "dim"


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
    "redaction.applied": _plain("secrets replaced"),
    "context.compacted": _plain("conversation shortened"),
    "drift.accepted": _plain("drift accepted", "ask"),
    "budget.exceeded": _plain("budget exceeded", "bad"),
    "error": _plain("error", "bad"),
    "note": _plain("note"),
}
