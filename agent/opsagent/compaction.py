"""Shortening a conversation by rules: old results first, and never the rules, the runbook, a step, a refusal or a question.

No model summarises anything: what was shortened is in the journal, under the event that the stub names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from opsagent.protocols import Message

LIMIT = 240_000
"""Characters of a conversation before it is shortened: about 60,000 tokens of logs and JSON."""
RECENT = 8
"""The last messages stay whole unless nothing else helps."""
STUB = 600
PIECE = 8_000


def size(messages: Sequence[Message]) -> int:
    """Characters that a request of these messages has, roughly."""
    return sum(len(str(m.get("content") or "")) + len(json.dumps(m.get("tool_calls") or "")) for m in messages)


def compact(messages: Sequence[Message], limit: int = LIMIT) -> Sequence[Message]:
    """The same conversation within `limit` characters if rules can do it; `messages` itself when it fits already.

    In this order, oldest first, until it fits: old results to stubs, old arguments to stubs, recent results to head and
    tail. System and user messages (rules, runbook, steps, red checks) stay as they are, and so do short results: refusals,
    answers, errors.
    """
    if size(messages) <= limit:
        return messages
    result = list(messages)
    old = range(max(0, len(result) - RECENT))
    passes: list[tuple[range, Callable[[Message], Message]]] = [
        (old, lambda message: _shorter_result(message, STUB)),
        (old, _shorter_arguments),
        (range(len(result)), lambda message: _shorter_result(message, PIECE)),
        (range(len(result)), lambda message: _shorter_result(message, STUB)),
    ]
    for places, shorten in passes:
        for index in places:
            if size(result) <= limit:
                return result
            result[index] = shorten(result[index])
    return result


def clip(text: str, keep: int) -> str:
    """Head and tail of a text, and how much lies between."""
    if len(text) <= keep + 80:
        return text
    head, tail = keep * 2 // 3, keep - keep * 2 // 3
    return f"{text[:head]}\n… [{len(text) - keep} characters shortened; the journal has them] …\n{text[-tail:]}"


def _shorter_result(message: Message, keep: int) -> Message:
    """A tool's result with less inside its fence; the fence's own lines stay."""
    content = message.get("content")
    if message.get("role") != "tool" or not isinstance(content, str) or len(content) <= keep + 200:
        return message
    first, _, rest = content.partition("\n")
    body, _, last = rest.rpartition("\n")
    if not body:
        return {**message, "content": clip(content, keep)}
    return {**message, "content": f"{first}\n{clip(body, keep)}\n{last}"}


def _shorter_arguments(message: Message) -> Message:
    """A call whose long arguments (a file's content) are cut: each text inside, so that it stays JSON."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_shorter_call(call) for call in calls]}


def _shorter_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    text = function.get("arguments")
    if not isinstance(text, str) or len(text) <= STUB:
        return call
    try:
        arguments = json.dumps(_cut(json.loads(text)), ensure_ascii=False)
    except ValueError:
        arguments = json.dumps({"shortened": clip(text, STUB)}, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return clip(value, 200)
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item) for item in value]
    return value
