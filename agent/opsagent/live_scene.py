"""What a run looks like at a moment: a fold over its events and over the progress of the call at work.

No terminal in here. `Scene.apply` and `Scene.progress` change it, live_draw.py draws it, and `take` hands over what is
finished and can be printed for good. Times are seconds of the run's clock (a simulated host's runs faster).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from opsagent.call import Call
from opsagent.live_work import Work, words
from opsagent.protocols import Event
from opsagent.transcript import Style, Transcript
from opsagent_tools.tool import Progress

INCIDENTAL = frozenset({"ssh_exec", "run_job", "write_file", "write_sysfs", "reboot_host", "read_config", "tail_log"})
"""Tools whose word is the outcome of a step only when no other tool has one."""
SAYS_NOTHING = re.compile(r"^(?:exit \d+|nothing of note|\S+ ended with exit 0|done)$")

State = Literal["ahead", "running", "done", "again", "failed"]
MARKS: dict[State, tuple[str, Style]] = {
    "ahead": (" ", ""), "running": ("▶", "step"), "done": ("✔", "good"), "again": ("⟲", "ask"), "failed": ("✘", "bad"),
}  # fmt: skip
Expect = Callable[[str, str], float | None]
"""(host, tool) → seconds that such a call took there before; None: not known."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that stays: what it says; of a step also its mark, its name and how long it took."""

    text: str
    style: Style = ""
    mark: str = ""
    name: str = ""
    took_s: float | None = None


@dataclass(slots=True)
class StepView:
    """A step of the runbook as the operator follows it."""

    id: str
    title: str
    state: State = "ahead"
    began: float = 0.0
    announced: bool = False
    """Its heading was printed already, because something had to be said while it was under way."""
    said: dict[str, tuple[bool, str]] = field(default_factory=dict)
    """Host → (whether the tool is a main one, its summary): what the step's calls found."""
    notes: list[Line] = field(default_factory=list)
    allowed: dict[str, list[str]] = field(default_factory=dict)
    """Who approved → what, of the calls that were asked about."""
    causes: list[str] = field(default_factory=list)
    """What calls found that is wrong, although they did what they should."""
    seen: set[str] = field(default_factory=set)
    """Texts of all notes since it was entered."""
    turn: str = ""
    """The remedy with which the step was left for another one."""

    def lines(self) -> list[Line]:
        """What is worth keeping beside the outcome: who allowed what, what went wrong."""
        asked = [Line(f"approved by {who}: {', '.join(what)}", "dim") for who, what in self.allowed.items()]
        wrong = [Line(text, "bad") for text in self.causes] if self.state in ("again", "failed") else []
        return [*asked, *self.notes, *wrong]

    def forget(self) -> None:
        """Everything was printed."""
        self.notes, self.allowed, self.causes = [], {}, []

    def outcome(self) -> str:
        """One line: what the calls found, by host when there were several; without a word of theirs, the title."""
        top = max((main for main, _text in self.said.values()), default=False)
        heard = {host: text for host, (main, text) in self.said.items() if main == top}
        found = {host: text for host, text in heard.items() if not SAYS_NOTHING.match(text)}
        if len(heard) == 1 and found:
            return next(iter(found.values()))
        return " · ".join(f"{host}: {text.split(';')[0]}" for host, text in found.items()) or self.title


@dataclass
class Scene:
    """A run on a screen. `steps` are (id, title) of the runbook."""

    steps: list[StepView]
    expect: Expect = lambda _host, _tool: None
    step: StepView | None = None
    work: Work | None = None
    thinking: tuple[str, float] | None = None
    """Model and when it was asked, while its reply is awaited."""
    log_line: str = ""
    """The last line of a server's log that says something."""
    asking: bool = False
    over: bool = False
    _ready: list[Line] = field(default_factory=list)
    _words: Transcript = field(default_factory=Transcript)
    _calls: dict[str, Work] = field(default_factory=dict)

    @classmethod
    def of(cls, steps: Sequence[tuple[str, str]], expect: Expect = lambda _host, _tool: None) -> Scene:
        return cls([StepView(name, title) for name, title in steps], expect)

    def take(self) -> list[Line]:
        """Lines that are ready to be printed for good; each is handed over once."""
        ready, self._ready = self._ready, []
        return ready

    def went_on(self, left: Sequence[str], current: str, now: float) -> None:
        """A run that was resumed: these steps were left before, and it is in that one."""
        for step in self.steps:
            step.state = "done" if step.id in left else step.state
            if step.id == current and step.state == "ahead":
                self.step, step.state, step.began = step, "running", now

    def flush(self) -> None:
        """Everything that is kept for the end of a step becomes ready now: somebody is about to be asked, or it ends."""
        step = self.step
        kept = step.lines() if step is not None else []
        if step is not None and (kept or self.asking):
            if not step.announced:
                step.announced = True
                self._ready.append(Line(step.title, "step", "▶", step.id))
            self._ready += kept
            step.forget()

    # --- events --------------------------------------------------------------------------------------------------

    def apply(self, event: Event, now: float) -> None:
        """Take one event into account; unknown types change nothing."""
        handler = getattr(self, "_on_" + event.type.replace(".", "_"), None)
        if handler is not None:
            handler(event.data, now)
        for line in self._words.lines([event]):  # the transcript's words, for what went wrong or was settled
            if event.data.get("stopped") and event.type == "call.unknown":
                call = self._calls.get(str(event.data["call"]))
                self._note(Line(f"{call.tool if call else 'a call'} was under way: resume looks how it went", "ask"))
            elif event.type == "run.finished" or (event.type == "call.finished" and event.data.get("ok", True)):
                continue  # said in a better place: at the end, and as the outcome of the step
            elif line.style == "bad":
                self._note(Line(words(line.text), "bad"))
            elif event.type in ("call.reconciled", "model.response"):
                self._note(Line(words(line.text, 300), "dim" if line.style == "" else line.style))

    def _note(self, line: Line) -> None:
        if self.step is None or self.step.state != "running":
            self._ready.append(line)
        elif line.text not in self.step.seen:  # a step's checks may come out red several times in a row
            self.step.seen.add(line.text)
            self.step.notes.append(line)

    def _on_step_entered(self, data: Mapping[str, Any], now: float) -> None:
        if self.step is not None and self.step.state == "running":
            self._leave("again", now)
        self.step = next((each for each in self.steps if each.id == data["step"]), None)
        if self.step is None:
            self.step = StepView(str(data["step"]), words(data.get("title", "")))
            self.steps.append(self.step)
        behind = self.steps.index(self.step)
        for each in self.steps[behind:]:
            each.state = "ahead"
        self.step.state, self.step.began, self.step.announced = "running", now, False
        self.step.said, self.step.seen, self.step.turn, self.log_line = {}, set(), "", ""
        self.step.forget()

    def _on_step_left(self, _data: Mapping[str, Any], now: float) -> None:
        self._leave("done", now)

    def _leave(self, state: State, now: float) -> None:
        step = self.step
        if step is None:
            return
        step.state = state
        mark, style = MARKS[state]
        text = step.outcome() if state != "again" else step.turn or step.title
        head, kept = Line(text, style, mark, step.id, now - step.began), step.lines()
        self._ready += [*kept, head] if step.announced else [head, *kept]
        step.forget()

    def _on_call_intent(self, data: Mapping[str, Any], now: float) -> None:
        tier = str((data.get("verdict") or {}).get("tier", "?"))
        self._calls[data["call"]["id"]] = self._work(data["call"], tier, now)

    def _work(self, call: Mapping[str, Any], tier: str, now: float) -> Work:
        return Work.of(call, tier, now, self.expect(call["host"], call["tool"]))

    def _on_approval_requested(self, data: Mapping[str, Any], _now: float) -> None:
        self.asking = True

    def _on_approval_decided(self, data: Mapping[str, Any], _now: float) -> None:
        self.asking = False
        call = self._calls.get(str(data["call"]))
        if call is None or (data["answer"] == "approve" and data["by"] in ("policy", "runbook")):
            return
        who = f"the {data['by']}" if data["by"] in ("scenario", "operator") else words(data["by"], 60)
        why = f": {words(data['reason'], 200)}" if data.get("reason") else ""
        running = self.step is not None and self.step.state == "running"
        if data["answer"] == "approve" and self.step is not None and running:
            self.step.allowed.setdefault(who, []).append(f"{call.tier} {call.what}")
        elif data["answer"] == "reject" and self.step is not None and running:
            self.step.said[call.host] = (True, f"not made: {call.what} was refused by {who}{why}")
        else:
            done = {"approve": "approved", "reject": "refused", "change": "changed", "stop": "stopped"}
            self._note(Line(f"{call.tier} {call.what} · {done.get(data['answer'], '?')} by {who}{why}", "ask"))

    def _on_call_started(self, data: Mapping[str, Any], now: float) -> None:
        self.work = self._calls.get(str(data["call"]))
        if self.work is not None:
            self.work.start(now)

    def _on_call_finished(self, data: Mapping[str, Any], _now: float) -> None:
        call, self.work = self._calls.pop(str(data["call"]), None), None
        result = data.get("result") or {}
        text = words(result.get("summary") or "")
        if call is None or not data.get("ok", True) or not text:
            return
        if result.get("cause") and self.step is not None:
            self.step.causes.append(f"{call.tool}: {text}")
        if SAYS_NOTHING.match(text) and self.step is not None and self.step.state == "running":
            self.step.said.setdefault(call.host, (False, text))
            return
        main = call.tool not in INCIDENTAL
        if self.step is None or self.step.state != "running":
            self._ready.append(Line(f"{call.tool} on {call.host}: {text}" if call.host else text))
        elif main or not self.step.said.get(call.host, (False, ""))[0]:
            self.step.said[call.host] = (main, text)

    def _on_call_failed(self, data: Mapping[str, Any], _now: float) -> None:
        self._calls.pop(str(data["call"]), None)
        self.work = None

    def _on_model_request(self, data: Mapping[str, Any], now: float) -> None:
        self.thinking = (words(data.get("model", ""), 60), now)

    def _on_model_response(self, _data: Mapping[str, Any], _now: float) -> None:
        self.thinking = None

    def _on_remedy_applied(self, data: Mapping[str, Any], _now: float) -> None:
        self.work = None
        change = " ".join(f"{name} {value}" for name, value in (data.get("change") or {}).items())
        cause = words(data.get("cause", ""), 60)
        if data.get("refused"):
            self._note(Line(f"the remedy for {cause} was refused", "ask"))
        elif self.step is not None:
            self.step.turn = f"{cause} → {words(change, 200) or 'remedy'}; again from {words(data.get('next', ''), 40)}"

    def _on_run_finished(self, data: Mapping[str, Any], now: float) -> None:
        if self.step is not None and self.step.state == "running":
            if data.get("status") in ("interrupted", "waiting-approval", "transient", "unknown-outcome"):
                self.flush()
            else:
                self._leave("failed", now)
        self.work, self.thinking, self.over = None, None, True

    # --- progress ------------------------------------------------------------------------------------------------

    def progress(self, call: Call, told: Progress, now: float) -> None:
        """What the tool at work says of itself. A call that resume settles was announced to another process."""
        if self.work is None or self.work.id != call.id:
            self.work = self._calls.setdefault(call.id, self._work(call.model_dump(), "?", now))
        self.log_line = self.work.tell(told, now) or self.log_line
