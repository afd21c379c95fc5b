"""A recorded run as something that can be asked: what was said, judged, decided and done, by position and by call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsagent.call import canonical
from opsagent.journal.reader import read_blob
from opsagent.journal.runs import find_run, open_run
from opsagent.journal.state import RunState
from opsagent.protocols import Event, Reply, ToolCall
from opsagent.runbook.model import Runbook
from opsagent.runbook.parse import parse
from opsagent.signals import Signal
from opsagent_tools.errors import ExitCode, OpsError, OutcomeUnknown, TranscriptDamaged

ENDS = ("call.finished", "call.failed", "call.unknown")


class Diverged(Signal):
    """The replay asked for something that was not recorded. A signal, because the loop must not answer it."""

    def __init__(self, what: str, *, event: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what, self.event, self.hint = what, event, hint

    def error(self) -> TranscriptDamaged:
        """The same as an error of the product (exit 9)."""
        return TranscriptDamaged(self.what, where=self.event, hint=self.hint)


@dataclass(frozen=True)
class Recording:
    """One run folder, read."""

    folder: Path
    events: tuple[Event, ...]
    state: RunState
    by_call: dict[str, list[Event]] = field(default_factory=dict)
    """Call id → its events in order, the intent first."""
    schemas: dict[str, Any] = field(default_factory=dict)
    """Argument schemas of the tools, as they were; {} when the run kept none."""

    @classmethod
    def open(cls, ref: str | Path) -> Recording:
        """Raises InputError (no such run), TranscriptDamaged."""
        opened = open_run(ref if isinstance(ref, Path) else find_run(ref))
        by_call: dict[str, list[Event]] = {}
        for event in opened.log.events:
            call = event.data.get("call")
            ident = call.get("id") if isinstance(call, dict) else call
            if isinstance(ident, str):
                by_call.setdefault(ident, []).append(event)
        if not opened.log.events or opened.log.events[0].type != "run.started":
            raise TranscriptDamaged("the journal does not begin with run.started", where=str(opened.folder))
        schemas = _schemas(opened.folder, opened.log.events[0])
        return cls(opened.folder, opened.log.events, opened.state, by_call, schemas)

    @property
    def started(self) -> dict[str, Any]:
        return self.events[0].data

    @property
    def model(self) -> str:
        return str(self.started.get("model") or "autopilot")

    def system(self) -> str:
        """The system prompt as it was: the run's blob, in older recordings the first message; '' when nobody read one."""
        sha256 = self.started.get("system")
        if isinstance(sha256, str) and sha256:
            return read_blob(self.folder, sha256).decode("utf-8", "replace")
        request = next((event for event in self.events if event.type == "model.request"), None)
        first = ((request.data.get("new") if request else None) or [{}])[0]
        return str(first.get("content") or "") if first.get("role") == "system" else ""

    def runbook(self, until: int | None = None) -> Runbook:
        """The runbook as it was, from its blob; a changed one that was accepted before event `until` counts.

        Raises TranscriptDamaged.
        """
        told = self.started.get("runbook") or {}
        sha256 = str(told.get("sha256", ""))
        for event in self.events[:until]:
            if event.type == "drift.accepted" and event.data.get("blob"):
                sha256 = str(event.data["blob"])
        text = read_blob(self.folder, sha256).decode("utf-8", "replace")
        runbook, faults = parse(text, str(told.get("path") or "runbook.md"))
        if runbook is None:
            raise TranscriptDamaged(f"the recorded runbook cannot be read: {faults[:1]}", where=str(self.folder))
        return runbook

    def as_recorded(self, intent: dict[str, Any]) -> dict[str, Any]:
        """A call's intent without arguments that its tool did not have yet when the run was recorded."""
        call = intent["call"]
        properties = (self.schemas.get(call["tool"]) or {}).get("properties")
        if not isinstance(properties, dict):
            return intent
        args = {name: value for name, value in call["args"].items() if name in properties}
        return {**intent, "call": {**call, "args": args}}

    def intents(self) -> list[Event]:
        return [event for event in self.events if event.type == "call.intent"]

    def replies(self) -> Iterator[tuple[Event, Reply | OpsError]]:
        """Each request with what came of it."""
        request: Event | None = None
        for event in self.events:
            if event.type == "model.request":
                request = event
            elif event.type == "model.response" and request is not None:
                yield request, reply_of(event)
                request = None
            elif event.type in ("error", "run.finished") and request is not None:
                yield request, self.gave_out(event)
                request = None

    def gave_out(self, event: Event) -> OpsError:
        """The error with which a request ended."""
        finished = next((e for e in self.events[event.seq - 1 :] if e.type == "run.finished"), event)
        error = OpsError(str(event.data.get("what", "the model gave out")), hint=str(event.data.get("hint") or ""))
        error.where = str(event.data.get("where") or "")
        error.exit_code = ExitCode(int(finished.data.get("exit_code") or ExitCode.MODEL_UNUSABLE))
        return error

    def outcome(self, event: Event) -> dict[str, Any]:
        """The result that an end records, or the error that it was, raised."""
        if event.type == "call.finished":
            result = event.data.get("result")
            return dict(result) if isinstance(result, dict) else {}
        raise failure_of(event)

    def nearest(self, tool: str, args: dict[str, Any], used: set[str]) -> str | None:
        """The unused recorded call of the same tool whose arguments share most with these; None without one."""
        best: tuple[float, str] | None = None
        for event in self.intents():
            call = event.data["call"]
            if call["tool"] == tool and call["id"] not in used:
                score = alike(call["args"], args)
                if best is None or score > best[0]:
                    best = (score, call["id"])
        return best[1] if best else None


def _schemas(folder: Path, started: Event) -> dict[str, Any]:
    sha256 = started.data.get("tools")
    if not isinstance(sha256, str) or len(sha256) != 64:
        return {}
    try:
        value = json.loads(read_blob(folder, sha256))
    except ValueError:
        raise TranscriptDamaged("the recorded tool schemas cannot be read", where=str(folder)) from None
    return value if isinstance(value, dict) else {}


def alike(left: dict[str, Any], right: dict[str, Any]) -> float:
    """Share of equal top-level arguments."""
    keys = {*left, *right}
    same = sum(canonical(left.get(key)) == canonical(right.get(key)) for key in keys)
    return same / len(keys) if keys else 1.0


def reply_of(event: Event) -> Reply:
    """The reply that a model.response records."""
    data = event.data
    message = data.get("message") or {}
    calls = tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in data.get("calls") or [])
    return Reply(
        text=str(message.get("content") or ""), calls=calls, finish=str(data.get("finish") or "stop"),
        reasoning=str(data.get("reasoning") or ""), usage=dict(data.get("usage") or {}),
        notes=tuple(data.get("notes") or ()),
    )  # fmt: skip


def failure_of(event: Event) -> OpsError:
    """The error that call.failed or call.unknown records."""
    data = event.data
    if event.type == "call.unknown":
        return OutcomeUnknown(str(data.get("what", "")))
    error = OpsError(str(data.get("what", "")), where=str(data.get("where") or ""), hint=str(data.get("hint") or ""))
    error.exit_code = ExitCode(int(data.get("exit_code") or 1))
    if data.get("cause"):
        error.cause = data["cause"]  # type: ignore[attr-defined]
    return error
