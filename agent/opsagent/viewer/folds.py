"""What an event holds beyond its line: arguments, verdicts, results, thinking, kept outputs."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from opsagent.protocols import Event
from opsagent.verify import cited_blobs
from opsagent.viewer.clip import clip
from opsagent.viewer.model import Fold
from opsagent.viewer.pretty import plain, readable
from opsagent_tools.errors import OpsError

MOST = 32_000
"""Characters of one value, and of one output, that a view holds at most."""

Read = Callable[[str], bytes]
"""From a sha256 to the bytes of a kept output; raises OpsError."""


def folds_of(event: Event, run: str, read: Read, most: int = MOST) -> tuple[Fold, ...]:
    """The long parts of an event. What is not ours to know (types of a newer version) is shown as it is.

    `run` is how the reader would name the run; it may come from a stranger's journal, and commands are copied: it is quoted.
    """
    maker = _MAKERS.get(event.type, _rest)
    try:
        made = list(maker(event.data))
    except (KeyError, TypeError, ValueError, AttributeError):
        made = [("what is there", readable(event.data), "data")]
    whole = f"opsagent show {shlex.quote(run)} {event.id}"
    folds = [clip(Fold(title, text, shape, whole=whole), most) for title, text, shape in made if text]
    return (*folds, *_outputs(event, shlex.quote(run), read, most))


Parts = Iterator[tuple[str, str, Any]]


def _outputs(event: Event, run: str, read: Read, most: int) -> Iterator[Fold]:
    """The blobs that an event names."""
    names = _names(event.data)
    for sha256 in dict.fromkeys(cited_blobs(event)):
        title, whole = names.get(sha256, "kept output"), f"opsagent show {run} --blob {sha256[:12]}"
        try:
            text = _output(read(sha256).decode("utf-8", "replace"))
        except OpsError as error:
            text, title = f"It cannot be shown: {error.what}", f"{title} (damaged)"
        yield clip(Fold(title, text, "output", whole=whole), most)


def _output(text: str) -> str:
    """A kept output as people read it: a program's text, or JSON over several lines."""
    if text[:1] == "{" and len(text) <= 1_000_000:
        with contextlib.suppress(ValueError, RecursionError):
            return readable(json.loads(text))
    return plain(text)


def _names(data: dict[str, Any]) -> dict[str, str]:
    """sha256 → what it is called."""
    book, output = data.get("runbook"), data.get("output")
    found = {str(sha): f"output {name}" for name, sha in output.items()} if isinstance(output, dict) else {}
    if isinstance(book, dict):
        found[str(book.get("sha256"))] = f"runbook {book.get('path') or book.get('name')}"
        known = {"tools": "schemas of the tools", "policy": "policy", "system": "system prompt"}
        found.update({str(data.get(key)): title for key, title in known.items()})
    return found


def _rest(data: dict[str, Any], *known: str, title: str = "data") -> Parts:
    """What the line does not say."""
    rest = {key: value for key, value in data.items() if key not in known and value not in (None, "", [], {})}
    if rest:
        yield title, readable(rest), "data"


def _started(data: dict[str, Any]) -> Parts:
    yield "parameters", readable(data.get("params") or {}), "data"
    yield from _rest(data, "params", "tools", "policy", "system")


def _request(data: dict[str, Any]) -> Parts:
    sent = data.get("new")
    if isinstance(sent, list) and sent:
        yield f"sent ({len(sent)} messages)", "\n\n".join(_message(message) for message in sent), "text"
    yield from _rest(data, "new", "model", "keep")


def _message(message: Any) -> str:
    if not isinstance(message, dict):
        return readable(message)
    content = message.get("content")
    text = plain(content) if isinstance(content, str) else readable(content) if content else ""
    calls = readable(message["tool_calls"]) if message.get("tool_calls") else ""
    return "\n".join(part for part in (f"── {plain(str(message.get('role')))} ──", text, calls) if part)


def _response(data: dict[str, Any]) -> Parts:
    if data.get("reasoning"):
        yield "thinking", plain(str(data["reasoning"])), "thinking"
    message = data.get("message")
    content = message.get("content") if isinstance(message, dict) else ""
    if isinstance(content, str) and (len(content) > 300 or "\n" in content):
        yield "answer", plain(content), "text"
    if data.get("calls"):
        yield "calls as it wrote them", readable(data["calls"]), "data"
    yield from _rest(data, "reasoning", "message", "calls", "model", "finish", title="usage")


def _intent(data: dict[str, Any]) -> Parts:
    call, verdict = data["call"], dict(data.get("verdict") or {})
    yield "arguments", readable(call["args"]) if call["args"] else "", "data"
    judged = {key: value for key, value in verdict.items() if key != "binding" and value not in (None, "", [], {})}
    yield "verdict of the gate", readable(judged) if judged else "", "data"
    rest = {key: call.get(key) for key in ("role", "declared", "rollback")}
    rest.update({key: value for key, value in data.items() if key not in ("call", "verdict")})
    yield from _rest(rest, title="how it was asked for")


def _finished(data: dict[str, Any]) -> Parts:
    yield "result", readable(data["result"]) if data.get("result") else "", "data"
    yield from _rest(data, "result", "call", "ok", "duration_s", "output")


def _check(data: dict[str, Any]) -> Parts:
    yield from _rest(data, "step", "expr", "ok", "evidence", "first", "last", title="values")


def _decided(data: dict[str, Any]) -> Parts:
    known = ("call", "answer", "by", "reason", "binding", *(["scope"] if data.get("scope") == "once" else []))
    yield from _rest(data, *known)


def _named(*known: str) -> Callable[[dict[str, Any]], Parts]:
    return lambda data: _rest(data, *known)


_MAKERS: dict[str, Callable[[dict[str, Any]], Parts]] = {
    "run.started": _started,
    "run.finished": _named("status", "exit_code"),
    "step.entered": _named("step", "title", "again"),
    "step.check": _check,
    "step.left": _named("step"),
    "model.request": _request,
    "model.response": _response,
    "call.intent": _intent,
    "approval.requested": _named("call", "tier", "binding"),
    "approval.decided": _decided,
    "call.started": _named("call"),
    "call.finished": _finished,
    "redaction.applied": _named("by"),
    "param.changed": _named("name"),
}
