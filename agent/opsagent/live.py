"""A run while it happens, as plain lines: one for each step, call, approval and remedy. Nothing flickers, all scrolls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from opsagent.call import Call
from opsagent.fence import neutral
from opsagent.protocols import Event
from opsagent_tools.tool import Progress

if TYPE_CHECKING:
    from opsagent.session import Wish

PROGRESS_EVERY = 10.0
"""Percent between two progress lines of one call."""


@dataclass
class PlainLines:
    """Writes to a stream; also what a log file gets."""

    wish: Wish
    out: TextIO
    _tools: dict[str, str] = field(default_factory=dict)
    _shown: dict[str, str] = field(default_factory=dict)

    def on_event(self, event: Event) -> None:
        handler = getattr(self, "_" + event.type.replace(".", "_"), None)
        if handler is not None:
            handler(event.data)

    def on_progress(self, call: Call, progress: Progress) -> None:
        """A line whenever the text changes or the amount has moved by a tenth."""
        share = ""
        if progress.done is not None and progress.total:
            percent = 100 * progress.done / progress.total
            share = f" {PROGRESS_EVERY * (percent // PROGRESS_EVERY):.0f} %"
        text = f"{progress.text}{share}"
        if self._shown.get(call.id) != text:
            self._shown[call.id] = text
            self.say(f"      {call.tool}: {text}")

    def say(self, text: str) -> None:
        self.out.write(neutral(text).replace("\n", " ") + "\n")
        self.out.flush()

    def _run_started(self, data: dict[str, Any]) -> None:
        mark = f' · SIMULATED lab "{data["lab"]}"' if data.get("simulated") else ""
        model = "autopilot (no LLM)" if data["model"] == "autopilot" else data["model"]
        hosts = ", ".join(f"{role}={name}" for role, name in data["hosts"].items() if name)
        self.say(f"{data['runbook']['name']} · {hosts} · {model}{mark} · run {data['run']}")

    def _step_entered(self, data: dict[str, Any]) -> None:
        self.say(f"▶ {data['step']}: {data.get('title', '')}" + (" (again)" if data.get("again") else ""))

    def _step_left(self, data: dict[str, Any]) -> None:
        self.say(f"✔ {data['step']}")

    def _step_check(self, data: dict[str, Any]) -> None:
        if not data["ok"]:
            self.say(f"  ✘ {data.get('what') or data['expr']}")

    def _call_intent(self, data: dict[str, Any]) -> None:
        call, verdict = data["call"], data.get("verdict") or {}
        self._tools[call["id"]] = call["tool"]
        where = f" on {call['host']}" if call["host"] else ""
        self.say(f"  {call['id']} {call['tool']}{where} [{verdict.get('tier', '?')}] {_brief(call)}")

    def _approval_decided(self, data: dict[str, Any]) -> None:
        if data["by"] not in ("policy", "runbook") or data["answer"] != "approve":
            reason = f": {data['reason']}" if data.get("reason") else ""
            self.say(f"    {data['answer']} by {data['by']}{reason}")

    def _call_finished(self, data: dict[str, Any]) -> None:
        summary = (data.get("result") or {}).get("summary") or ("done" if data["ok"] else "failed")
        self.say(f"    {'→' if data['ok'] else '✘'} {summary} ({data['duration_s']:.1f} s)")

    def _call_failed(self, data: dict[str, Any]) -> None:
        self.say(f"    ✘ {data['what']}" + (f" ({data['hint']})" if data.get("hint") else ""))

    def _call_unknown(self, data: dict[str, Any]) -> None:
        self.say(f"    ? outcome unknown: {data.get('what', '')}")

    def _call_reconciled(self, data: dict[str, Any]) -> None:
        self.say(f"    settled: it happened: {data['happened']}")

    def _remedy_applied(self, data: dict[str, Any]) -> None:
        self.say(f"  ⟲ remedy for {data['cause']}: {data.get('change') or 'calls'} → {data.get('next', 'refused')}")

    def _error(self, data: dict[str, Any]) -> None:
        self.say(f"✘ {data['what']}" + (f" ({data['hint']})" if data.get("hint") else ""))

    def _model_response(self, data: dict[str, Any]) -> None:
        text = (data.get("message") or {}).get("content") or ""
        if text and data.get("model") != "autopilot":
            self.say(f"  · {text[:300]}")


def _brief(call: dict[str, Any]) -> str:
    """The argument that says most, on one line."""
    args = call["args"]
    for key in ("argv", "path", "question", "unit"):
        if args.get(key):
            value = args[key]
            text = " ".join(str(word) for word in value) if isinstance(value, list) else str(value)
            return text[:160]
    flags = args.get("flags")
    return (" ".join(flags) if isinstance(flags, list) else str(flags or ""))[:160]
