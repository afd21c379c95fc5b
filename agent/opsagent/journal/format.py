"""One event, one line: the journal's format on disk, with its version.

A line is a JSON object `{"v", "seq", "ts", "type", "data", "prev"}` and a newline. `seq` is 1 for the first line and grows
by one, so that event `eN` is line N of the file. `prev` is the sha256 of the previous line's bytes without its newline.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from opsagent.protocols import Event
from opsagent_tools.errors import TranscriptDamaged

FORMAT = 2
FORMATS: dict[int, str] = {
    1: "first format: envelope v, seq, ts, type, data, prev; blobs by sha256",
    2: "types host.locked, host.released and bystanders; an approval says the rollback, changed arguments and, beyond one "
    "call, its policy; run.started names the system prompt's blob",
}
"""Every format that was ever written, with one sentence; tests/journal/corpus has a run of each."""

EVENT_TYPES: dict[str, str] = {
    "run.started": "who, where, what: runbook, blobs, model, hosts, parameters",
    "run.resumed": "another process goes on with the run",
    "run.finished": "status and exit code of this process",
    "step.entered": "a step of the runbook begins, or begins again",
    "step.check": "one expression, evaluated by us",
    "step.left": "every check of the step held",
    "model.request": "what is sent to the model, as a change of the last request",
    "model.retry": "a request is sent again: why, and after how long",
    "model.response": "what the model answered",
    "model.rejected": "an answer, or a call in it, that cannot be used",
    "call.intent": "a valid call and the gate's verdict",
    "approval.requested": "somebody is asked",
    "approval.decided": "what they said",
    "call.started": "the effect begins after this line",
    "call.progress": "how far something slow is",
    "call.finished": "the call's result",
    "call.failed": "the call could not do its work",
    "call.unknown": "the link was lost: it may or may not have happened",
    "call.reconciled": "what had happened",
    "remedy.applied": "the answer to a known cause",
    "param.changed": "a parameter of the run has a new value",
    "drift.accepted": "runbook, policy or hosts differ from the start, and the operator knows",
    "redaction.applied": "secrets were replaced: rules and counts",
    "context.compacted": "the conversation was shortened",
    "budget.exceeded": "a budget is used up",
    "snapshot": "facts of a host before or after",
    "host.locked": "no other run writes on this host until then",
    "host.released": "other runs may write there again",
    "bystanders": "servers of others on a host: how they were, or that one is gone",
    "note": "a remark",
    "error": "the run cannot go on",
}
"""The closed set of types that we write. A reader keeps the place of a type it does not know, and ignores its data."""

_OF_A_CALL: dict[str, type] = {"call": str}
SHAPES: dict[str, dict[str, type]] = {
    "run.started": {"run": str, "hosts": dict, "runbook": dict, "params": dict, "model": str, "lab": str},
    "run.finished": {"status": str, "exit_code": int, "failed": dict},
    "step.entered": {"step": str},
    "step.check": {"step": str, "expr": str},
    "step.left": {"step": str},
    "model.request": {"new": list},
    "model.response": {"message": dict, "usage": dict, "model": str},
    "call.intent": {"call": dict, "verdict": dict},
    "approval.requested": _OF_A_CALL,
    "approval.decided": _OF_A_CALL,
    "call.started": _OF_A_CALL,
    "call.progress": _OF_A_CALL,
    "call.finished": {"call": str, "result": dict},
    "call.failed": _OF_A_CALL,
    "call.unknown": _OF_A_CALL,
    "call.reconciled": _OF_A_CALL,
    "remedy.applied": {"step": str, "cause": str},
    "param.changed": {"name": str},
    "drift.accepted": {"what": str},
    "redaction.applied": {"rules": dict},
    "snapshot": {"facts": dict, "host": str, "phase": str},
    "bystanders": {"seen": list, "lost": list, "ended": list, "host": str},
}
"""Type → what its data must be, where they are there and not null: readers rely on these."""

UNFLUSHED = frozenset({"call.progress"})
"""Types that nobody's safety depends on: losing the last of them with the power is fine."""


def digest(line: bytes) -> str:
    """sha256 of a line's bytes, without its newline."""
    return hashlib.sha256(line).hexdigest()


def clean(value: Any) -> Any:
    """The JSON form of a value: tuples become lists, keys strings; what UTF-8 or JSON cannot say is replaced.

    A lone surrogate becomes U+FFFD and a non-finite float its name: refusing them would lose the event they are in.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [clean(item) for item in items]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if hasattr(value, "model_dump"):
        return clean(value.model_dump(mode="json"))
    return clean(str(value))


def encode(event: Event) -> bytes:
    """The line of an event, without its newline."""
    envelope = {
        "v": FORMAT,
        "seq": event.seq,
        "ts": event.ts,
        "type": event.type,
        "data": event.data,
        "prev": event.prev,
    }
    return json.dumps(envelope, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def damaged(what: str, number: int, where: str) -> TranscriptDamaged:
    """The error for a line that cannot be trusted."""
    return TranscriptDamaged(
        f"line {number} {what}",
        where=f"{where}:{number}",
        hint="nothing after this line can be trusted; `opsagent verify` lists what is intact",
    )


def decode(line: bytes, number: int, prev: str, where: str) -> Event:
    """Read line `number`; `prev` is the digest of the line before it. Raises TranscriptDamaged naming the line."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        raise damaged("is not JSON", number, where) from None
    if not isinstance(raw, dict):
        raise damaged("is not an object", number, where)
    version = raw.get("v")
    if version not in FORMATS:
        error = damaged(f"has format {version!r}, and this version reads up to {FORMAT}", number, where)
        error.hint = "a newer opsagent wrote it: upgrade opsagent to read this run"
        raise error
    seq, data, kind, ts = raw.get("seq"), raw.get("data"), raw.get("type"), raw.get("ts")
    if not isinstance(data, dict) or not isinstance(kind, str) or not isinstance(ts, str):
        raise damaged("lacks type, ts or data", number, where)
    if seq != number:
        raise damaged(f"has seq {seq!r} instead of {number}: a line was removed, doubled or moved", number, where)
    if raw.get("prev") != prev:
        raise damaged("does not continue the chain: it, or the line before it, was changed", number, where)
    for key, shape in SHAPES.get(kind, {}).items():
        if data.get(key) is not None and not isinstance(data[key], shape):
            raise damaged(f"has a {kind} that cannot be read: its {key} is no {shape.__name__}", number, where)
    return Event(seq=number, ts=ts, type=kind, data=data, prev=prev)
