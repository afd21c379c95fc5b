"""An answer that came in one piece."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opsagent.models.accumulate import numbered, tokens
from opsagent.models.faults import Fault, from_words, message_of
from opsagent.protocols import Reply


def reply_of(body: bytes | str, content_type: str = "application/json") -> Reply:
    """Read a whole Chat Completion. Raises Fault for what is none: an error, HTML, no choices."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    try:
        value = json.loads(text)
    except ValueError:
        kind = "an HTML page" if "html" in content_type or "<html" in text[:500].lower() else "no JSON"
        raise Fault(
            "unusable",
            f"the endpoint answered {kind} instead of a completion",
            hint="check OPENAI_BASE_URL: it usually ends in /v1",
        ) from None
    if isinstance(value, Mapping) and value.get("error"):
        raise from_words(message_of(value))
    choices = value.get("choices") if isinstance(value, Mapping) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(message, Mapping):
        raise Fault(
            "unusable", "the endpoint answered a completion without choices", hint="`opsagent doctor` checks it"
        )
    return _reply(first, message, tokens(value.get("usage")))


def _reply(choice: Mapping[str, Any], message: Mapping[str, Any], usage: dict[str, int]) -> Reply:
    found: list[tuple[str, str, str | dict[str, Any]]] = []
    notes: list[str] = []
    wanted = message.get("tool_calls")
    for item in wanted if isinstance(wanted, list) else []:
        function = item.get("function") if isinstance(item, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            notes.append("arguments-object")
            arguments = dict(arguments)
        elif not isinstance(arguments, str):
            arguments = ""
        found.append((str(item.get("id") or ""), str(function.get("name") or ""), arguments))
    calls, more = numbered(found)
    finish = str(choice.get("finish_reason") or ("tool_calls" if calls else ""))
    if not finish:
        notes.append("no-finish-reason")
    content = _text(message.get("content"))
    refusal = message.get("refusal")
    return Reply(
        text=content,
        calls=calls,
        finish="refusal" if refusal and not calls else finish or "stop",
        reasoning=str(message.get("reasoning_content") or message.get("reasoning") or ""),
        usage=usage,
        notes=(*notes, *more, *(() if usage else ("usage-unknown",))),
    )


def _text(content: Any) -> str:
    """The words of a content: a text, or a list of parts of which the texts count."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""
