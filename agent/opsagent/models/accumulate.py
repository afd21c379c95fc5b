"""A streamed answer, put together: tolerant of what compatible servers do, strict where a guess could run a wrong call.

Names and ids: the first wins. A call belongs to its `index`, or else to its id, or else to the call before. Nothing counts
until the stream has said why it ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent.models.faults import Fault, from_words, message_of
from opsagent.protocols import Reply, ToolCall

LONGEST = 2_000_000
"""Characters of one answer: more is a model that does not end."""


@dataclass
class _Piece:
    """A call while it grows."""

    index: Any
    id: str
    name: str
    text: str = ""
    whole: dict[str, Any] | None = None
    """Arguments that came as an object."""


@dataclass
class Accumulator:
    """Takes chunks as dicts; `reply()` at the end of the stream. Raises Fault for what cannot be trusted."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: list[_Piece] = field(default_factory=list)
    finish: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    chunks: int = 0
    size: int = 0
    _shown: int = 0

    def fresh(self) -> list[str]:
        """Pieces of text that came since the last time this was asked."""
        new, self._shown = self.text[self._shown :], len(self.text)
        return new

    def add(self, chunk: Mapping[str, Any]) -> None:
        self.chunks += 1
        if chunk.get("error"):
            raise from_words(message_of(chunk))
        self.usage = tokens(chunk.get("usage")) or self.usage
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(first, Mapping):
            return
        delta = first.get("delta")
        self._delta(delta if isinstance(delta, Mapping) else {})
        if first.get("finish_reason"):
            self.finish = str(first["finish_reason"])

    def _delta(self, delta: Mapping[str, Any]) -> None:
        for value, into in (
            (delta.get("content"), self.text),
            (delta.get("reasoning_content") or delta.get("reasoning"), self.reasoning),
            (delta.get("refusal"), self.refusal),
        ):
            if isinstance(value, str):
                into.append(value)
                self._grow(len(value))
        calls = delta.get("tool_calls")
        for item in calls if isinstance(calls, list) else []:
            if isinstance(item, Mapping):
                self._call(item)

    def _grow(self, more: int) -> None:
        self.size += more
        if self.size > LONGEST:
            raise Fault("unusable", f"the answer does not end ({self.size} characters)")

    def _call(self, item: Mapping[str, Any]) -> None:
        function = item.get("function") if isinstance(item.get("function"), Mapping) else {}
        assert isinstance(function, Mapping)
        call = self._find(item, str(function.get("name") or ""))
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            call.whole = dict(arguments)
            self._note("arguments-object")
        elif isinstance(arguments, str):
            call.text += arguments
            self._grow(len(arguments))

    def _find(self, item: Mapping[str, Any], name: str) -> _Piece:
        """The call that a delta belongs to, or a new one."""
        index, ident = item.get("index"), str(item.get("id") or "")
        known = self._known(index, ident)
        if known is None:
            if not self.calls and index not in (0, None):
                self._note("first-index-not-0")
            if index is None:
                self._note("no-index")
            known = _Piece(index, ident, name)
            self.calls.append(known)
            return known
        if name and known.name and name != known.name:
            raise Fault("ambiguous", f"a call changed its name from {known.name!r} to {name!r} while it was streamed")
        if (name and known.name) or (ident and known.id):
            self._note("repeated-name-or-id")
        known.name, known.id = known.name or name, known.id or ident
        return known

    def _known(self, index: Any, ident: str) -> _Piece | None:
        if index is not None:
            same = [call for call in self.calls if call.index == index]
            if ident and same and all(call.id and call.id != ident for call in same):
                self._note("index-used-twice")
                return None
            return next((call for call in same if ident and call.id == ident), same[-1] if same else None)
        if ident:
            return next((call for call in self.calls if call.id == ident), None)
        return self.calls[-1] if self.calls else None

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def reply(self) -> Reply:
        """The whole answer. Raises Fault: interrupted without a finish reason, ambiguous where calls cannot be told."""
        if self.chunks == 0:
            raise Fault("interrupted", "the stream ended without an answer")
        if not self.finish:
            raise Fault("interrupted", "the stream ended without a finish reason")
        if self.finish == "tool_calls" and not self.calls:
            raise Fault("ambiguous", "the stream announced calls and had none")
        if self.finish != "length":
            for call in self.calls:
                _unambiguous(call)
        found = [(call.id, call.name, call.text if call.whole is None else call.whole) for call in self.calls]
        calls, more = numbered(found)
        return Reply(
            text="".join(self.text),
            calls=calls,
            finish="refusal" if self.refusal and not calls else self.finish,
            reasoning="".join(self.reasoning),
            usage=self.usage,
            notes=(*self.notes, *more, *(() if self.usage else ("usage-unknown",))),
        )


def _unambiguous(call: _Piece) -> None:
    """Raises Fault when the pieces of a call make more than one JSON value: sent twice, or two calls in one."""
    if not call.name:
        raise Fault("ambiguous", "a streamed call has no name")
    if call.whole is not None and call.text:
        raise Fault("ambiguous", f"{call.name}: arguments came as text and as an object")
    text = call.text.strip()
    try:
        _value, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return  # not JSON at all: the model hears of it
    if text[end:].strip():
        raise Fault("ambiguous", f"{call.name}: arguments hold more than one JSON value")


def numbered(
    found: list[tuple[str, str, str | dict[str, Any]]],
) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    """Calls with ids of their own, and notes. An id that is empty or taken is replaced; an equal call is left out."""
    calls: list[ToolCall] = []
    notes: list[str] = []
    seen: set[str] = set()
    ids: set[str] = set()
    for place, (ident, name, arguments) in enumerate(found):
        key = json.dumps([name, arguments], sort_keys=True)
        if key in seen:
            notes.append(f"duplicate-call:{name}")
            continue
        seen.add(key)
        if not ident or ident in ids:
            notes.append("empty-id" if not ident else "id-used-twice")
            ident = f"call_{place}_{name}"
        ids.add(ident)
        calls.append(ToolCall(ident, name, arguments))
    return tuple(calls), tuple(notes)


def tokens(usage: Any) -> dict[str, int]:
    """The counts of a usage object; {} when there is none."""
    if not isinstance(usage, Mapping):
        return {}
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {name: usage[name] for name in names if isinstance(usage.get(name), int)}
