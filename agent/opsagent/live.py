"""A run while it happens: on a terminal the live view (live_view.py), elsewhere plain lines, which are here.

Plain lines: one for each step, call, approval and remedy, for log files, pipes and terminals that cannot move a cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from opsagent.call import Call
from opsagent.live_work import brief, words
from opsagent.protocols import Event
from opsagent_tools.tool import Progress

if TYPE_CHECKING:
    from opsagent.journal.state import RunState
    from opsagent.run import Run, Watcher
    from opsagent.session import Wish

PROGRESS_EVERY = 10.0
"""Percent between two progress lines of one call."""
MODES = {"resume": "goes on", "stop": "stop the server", "rollback": "roll back"}
LINE = 2000
"""Characters of a plain line."""


def watcher(wish: Wish, out: TextIO) -> Watcher:
    """Who follows a run for the stream: the live view where lines can change in place, else plain lines."""
    if not out.isatty():
        return PlainLines(wish, out)
    from opsagent.approving import asks_person
    from opsagent.live_view import LiveView, usable

    return LiveView(wish, out, asks_person(wish)) if usable(out) else PlainLines(wish, out)


def headline(wish: Wish, event: Event) -> str:
    """What runs where, and who decides: `migrate · kpro6 → kpro5/ct129 · autopilot (no LLM) · SIMULATED lab "story"`."""
    roles = {role: name for role, name in wish.places.roles.items() if name}
    old, new = roles.get("old"), roles.get("target")
    hosts = f"{old} → {new}" if old and new else ", ".join(dict.fromkeys(roles.values()))
    model = "autopilot (no LLM)" if wish.llm in ("", "autopilot") else wish.llm
    parts = [
        wish.runbook.name,
        hosts,
        model,
        f'SIMULATED lab "{wish.places.lab_name}"' if wish.places.simulated else "",
        "dry run" if wish.dry else "",
        MODES.get(str(event.data.get("mode")), "goes on") if event.type == "run.resumed" else "",
    ]
    return words(" · ".join(part for part in parts if part), 300)


def ended(data: dict[str, Any], state: RunState | None, mode: str = "", said: Sequence[str] = ()) -> list[str]:
    """Why a run ended before its end and how it goes on, from the data of run.finished; [] when it is verified.

    `mode` is that of run.resumed: a run whose server was stopped, or that was rolled back, does not go on. What was
    `said` just before is not said again.
    """
    if mode in ("stop", "rollback"):
        return []
    status, run = str(data.get("status") or ""), state.run if state is not None else "RUN"
    if status == "verified":
        return []
    if status == "interrupted":
        return [f"interrupted; go on with: opsagent resume {run}"]
    why = (data.get("failed") or {}).get("text") if isinstance(data.get("failed"), dict) else ""
    told = bool(why) and any(str(why).partition(" (")[0] in line for line in said)
    lines = [f"{status}: {words(why)}" if why and not told else status]
    if status == "waiting-approval":
        call = state.waiting[-1].call.id if state is not None and state.waiting else "CALL"
        lines.append(f"opsagent approve {run} {call}   then: opsagent resume {run}")
    elif status == "transient":
        lines.append(f"go on with: opsagent resume {run}")
    elif status == "unknown-outcome":
        lines.append(f"look at the host, then: opsagent resume {run}")
    return lines


@dataclass
class PlainLines:
    """Writes to a stream; also what a log file gets."""

    wish: Wish
    out: TextIO
    _tools: dict[str, str] = field(default_factory=dict)
    _shown: dict[str, str] = field(default_factory=dict)
    _red: set[str] = field(default_factory=set)
    """Red checks that were said since the step was entered: each round of checks would say them again."""
    _run: Run | None = None
    _mode: str = ""

    def attach(self, run: Run) -> None:
        self._run = run

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
        self.out.write(" " * (len(text) - len(text.lstrip(" "))) + words(text, LINE) + "\n")
        self.out.flush()

    def _run_started(self, data: dict[str, Any]) -> None:
        mark = f' · SIMULATED lab "{data["lab"]}"' if data.get("simulated") else ""
        model = "autopilot (no LLM)" if data["model"] == "autopilot" else data["model"]
        hosts = ", ".join(f"{role}={name}" for role, name in data["hosts"].items() if name)
        self.say(f"{data['runbook']['name']} · {hosts} · {model}{mark} · run {data['run']}")

    def _step_entered(self, data: dict[str, Any]) -> None:
        self._red.clear()
        self.say(f"▶ {data['step']}: {data.get('title', '')}" + (" (again)" if data.get("again") else ""))

    def _step_left(self, data: dict[str, Any]) -> None:
        self.say(f"✔ {data['step']}")

    def _step_check(self, data: dict[str, Any]) -> None:
        text = f"  ✘ {data.get('what') or data['expr']}" + (f"   (wanted: {data['why']})" if data.get("why") else "")
        if not data["ok"] and text not in self._red:
            self._red.add(text)
            self.say(text)

    def _call_intent(self, data: dict[str, Any]) -> None:
        call, verdict = data["call"], data.get("verdict") or {}
        self._tools[call["id"]] = call["tool"]
        where = f" on {call['host']}" if call["host"] else ""
        self.say(f"  {call['id']} {call['tool']}{where} [{verdict.get('tier', '?')}] {brief(call)}")

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

    def _run_resumed(self, data: dict[str, Any]) -> None:
        self._mode = str(data.get("mode") or "")
        self.say(MODES.get(self._mode, "goes on"))

    def _run_finished(self, data: dict[str, Any]) -> None:
        for line in ended(data, self._run.journal.state if self._run is not None else None, self._mode):
            self.say(line)
