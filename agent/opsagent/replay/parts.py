"""What stands in for the world in a replay: recorded verdicts, decisions and results, a clock that does not run, no host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from opsagent.call import Call, Decision, Reason, Verdict
from opsagent.gate.approvals import expired
from opsagent.protocols import Event
from opsagent.replay.compare import first_difference
from opsagent.replay.journal import Cut, ReplayJournal, is_torn_note
from opsagent.replay.recording import ENDS, Diverged, Recording, alike, failure_of
from opsagent.run import Run
from opsagent.watching import ended
from opsagent_tools.errors import BudgetExceeded, HostUnreachable, PolicyDenied
from opsagent_tools.host import Command, Completed, Sink
from opsagent_tools.tool import Tool


@dataclass(frozen=True, slots=True)
class NoHost:
    """A host that must not be used: in a replay nothing reaches one."""

    name: str

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        raise Diverged(f"the replay would have used the host {self.name}: {command.stages}")

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class NoTime:
    """A clock that stands still: what a replay takes says nothing."""

    def now(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        return


@dataclass(frozen=True, slots=True)
class RecordedVerdict(Verdict):
    """A verdict with its recorded binding: arguments are redacted by now, so it could not be computed again."""

    told: str = ""

    def binding(self, call: Call, safe: Callable[[Any], Any] = lambda value: value) -> str:
        return self.told


class Probed(BaseModel):
    """The recorded answer of a tool's probe."""

    result: dict[str, Any]

    def model_dump(self, **_options: Any) -> dict[str, Any]:
        return self.result


@dataclass
class Matches:
    """Which recorded call stands for which call of the replay."""

    recording: Recording
    mode: str
    used: dict[str, str] = field(default_factory=dict)
    """Call of the replay → recorded call."""

    def find(self, call: Call) -> str:
        """The recorded call's id. Raises Diverged when there is none."""
        if call.id in self.used:
            return self.used[call.id]
        found = self._nearest(call) if self.mode == "loose" else self._at_its_place(call)
        self.used[call.id] = found
        return found

    def _at_its_place(self, call: Call) -> str:
        intents = self.recording.intents()
        place = len(self.used)
        if place >= len(intents):
            raise Diverged(f"call {place + 1}, {call.tool}, was never recorded: the recording has {len(intents)} calls")
        recorded = intents[place].data["call"]
        if recorded["tool"] != call.tool or recorded["host"] != call.host:
            raise Diverged(
                f"call {place + 1} diverged: recorded {recorded['tool']} on {recorded['host'] or '-'}, "
                f"now {call.tool} on {call.host or '-'}",
                event=intents[place].id,
            )
        return str(recorded["id"])

    def _nearest(self, call: Call) -> str:
        found = self.recording.nearest(call.tool, call.args, set(self.used.values()))
        if found is None:
            other = self.recording.nearest(call.tool, call.args, set())
            known = "it was recorded, but less often" if other else f"no {call.tool} was recorded"
            raise Diverged(f"{call.tool} has no recorded result left: {known}", event=other or "")
        return found

    def difference(self, call: Call) -> str:
        """How the matched recorded call differs, for the operator; '' when it does not."""
        recorded = self.recording.by_call[self.find(call)][0].data["call"]
        found = first_difference(recorded["args"], call.args)
        return (
            "" if found is None else f"{call.id} {call.tool} ({alike(recorded['args'], call.args):.0%} alike): {found}"
        )


@dataclass
class ReplayTools:
    """Recorded results in place of tools. `execute` is the loop's `execute_tool`."""

    recording: Recording
    journal: ReplayJournal
    mode: str
    matches: Matches
    differences: list[str] = field(default_factory=list)

    def execute(self, call: Call, _real: Callable[[], BaseModel]) -> dict[str, Any]:
        """The recorded result of this call. Raises what it had raised, or Diverged."""
        if self.mode != "strict":
            different = self.matches.difference(call)
            if different:
                self.differences.append(different)
            ends = [e for e in self.recording.by_call[self.matches.find(call)] if e.type in ENDS]
            if not ends:
                raise Diverged(f"{call.id} {call.tool} has no recorded end")
            return self.recording.outcome(ends[-1])
        coming = self.journal.upcoming
        if coming is None or coming.type == "run.resumed" or is_torn_note(coming):
            raise Cut("the recorded process died in this call")
        if coming.type == "run.finished":
            raise KeyboardInterrupt
        for event in self.journal.ahead_of(call.id):
            if event.type in ENDS:
                return self.recording.outcome(event)
        raise Cut("the recording has no end of this call")

    def tools(self, real: Mapping[str, Tool[Any, Any]]) -> dict[str, Tool[Any, Any]]:
        """The tools with recorded probes: arguments, results and tiers stay those of today."""
        return {
            name: dataclasses.replace(tool, probe=self._probe) if tool.probe is not None else tool
            for name, tool in real.items()
        }

    def _probe(self, _host: Any, _args: Any, ctx: Any) -> Probed | None:
        events = self._events_of(ctx.call_id)
        for event in events:
            if event.type != "call.reconciled":
                continue
            happened = event.data.get("happened")
            if happened in (True, "yes"):
                return Probed(result=next((dict(e.data["result"]) for e in events if e.type == "call.finished"), {}))
            if happened in (False, "no"):
                return None
            raise HostUnreachable("the probe did not reach the host")
        raise Diverged(f"{ctx.call_id} was not probed in the recording")

    def _events_of(self, call_id: str) -> Iterator[Event]:
        if self.mode != "strict":
            return iter(self.recording.by_call.get(self.matches.used.get(call_id, call_id), []))
        return self.journal.ahead_of(call_id)


@dataclass
class ReplayGate:
    """Recorded verdicts and decisions. Nothing is classified: the policy of today has no say in what was."""

    recording: Recording
    journal: ReplayJournal
    mode: str
    matches: Matches

    def _as_the_host(self) -> None:
        """Raise the error with which the recorded process ended here: its host was away, or locked by another run."""
        coming = self.journal.upcoming
        if coming is not None and coming.type == "error":
            raise self.recording.gave_out(coming)

    def judge(self, call: Call) -> Verdict:
        known = self.journal.state.calls.get(call.id)
        if known is not None:
            self._as_the_host()
        told = known.verdict if known is not None else self._intent(call).data.get("verdict")
        if told is None:
            events = self.recording.by_call.get(self._recorded(call), [])
            raise failure_of(next((e for e in events if e.type == "call.failed"), events[0]))
        return RecordedVerdict(
            told["tier"], tuple(Reason(**r) for r in told["reasons"]), tuple(told["assumed"]), tuple(told["effects"]),
            dict(told.get("facts") or {}), told=str(told.get("binding") or ""),
        )  # fmt: skip

    def taint(self) -> None:
        return

    def _recorded(self, call: Call) -> str:
        return call.id if self.mode == "strict" else self.matches.find(call)

    def _intent(self, call: Call) -> Event:
        if self.mode != "strict":
            return self.recording.by_call[self.matches.find(call)][0]
        coming = self.journal.next_intent()
        if coming is None:
            raise Diverged(f"{call.id} {call.tool} was never recorded: the recording makes no further call")
        return coming

    def admit(
        self, call: Call, verdict: Verdict, *, rollback: str = "", diff: str = "",
        asking: Callable[[], None] | None = None,
    ) -> Decision:  # fmt: skip
        events = list(self._of(call))
        if asking is not None and any(event.type == "approval.requested" for event in events):
            asking()
        decided = [event for event in events if event.type == "approval.decided"]
        if not decided:
            return Decision("wait", by="nobody")
        event = decided[0] if self.mode == "strict" else decided[-1]
        data = event.data
        if data.get("by") == "policy" and not data.get("binding") and data.get("answer") == "reject":
            raise PolicyDenied(str(data.get("reason", "")))
        return Decision(
            data["answer"], by=str(data.get("by", "")), reason=str(data.get("reason") or ""),
            scope=data.get("scope") or "once", args=self._changed(event) if data["answer"] == "change" else None,
        )  # fmt: skip

    def recheck(self, call: Call, verdict: Verdict) -> None:
        self._as_the_host()
        coming = self.journal.upcoming
        if coming is not None and coming.type == "approval.decided" and coming.data.get("call") == call.id:
            raise PolicyDenied(str(coming.data.get("reason", "")))

    def expired(self, decision: Mapping[str, Any]) -> bool:
        """By the clock of the recording: a transcript is replayed long after."""
        coming = self.journal.upcoming
        return coming is not None and expired(decision, datetime.fromisoformat(coming.ts))

    def _of(self, call: Call) -> Iterator[Event]:
        if self.mode != "strict":
            return iter(self.recording.by_call.get(self.matches.find(call), []))
        return self.journal.ahead_of(call.id)

    def _changed(self, decision: Event) -> dict[str, Any]:
        """The changed arguments; older recordings have them only in the call that followed."""
        if isinstance(decision.data.get("args"), dict):
            return dict(decision.data["args"])
        after = self.recording.events[decision.seq :]
        return next((dict(e.data["call"]["args"]) for e in after if e.type == "call.intent"), {})


@dataclass
class ReplayWatch:
    """Finds the bystanders lost that the recorded run found lost."""

    journal: ReplayJournal

    def begin(self, run: Run, role: str) -> None:
        return

    def after(self, run: Run, call: Call) -> None:
        event = self.at_the_end(run)
        if event is not None:
            raise ended(event)

    def at_the_end(self, run: Run) -> Event | None:
        recorded = self.journal.lost_ahead()
        return run.emit("bystanders", **recorded.data) if recorded is not None else None


@dataclass
class ReplayBudget:
    """Gives out where the recorded one gave out."""

    journal: ReplayJournal

    def turn(self, usage: Mapping[str, int]) -> None:
        self.call()

    def call(self) -> None:
        coming = self.journal.upcoming
        if coming is not None and coming.type == "budget.exceeded":
            raise BudgetExceeded(str(coming.data.get("what", "")), hint=str(coming.data.get("hint") or ""))
