"""What can be wrong with an endpoint or its answer, sorted by what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opsagent_tools.errors import InputError, ModelUnavailable, ModelUnusable, OpsError

Kind = Literal["transient", "interrupted", "ambiguous", "overflow", "capability", "configuration", "unusable"]
"""transient: the same again later · interrupted: the same again, without streaming if it happens again · ambiguous: once
without streaming · overflow: shorter · capability: without the parameter · configuration, unusable: give up."""


class ModelRefused(ModelUnusable):
    """The model refuses, or says nothing that can be used, after it was asked once more."""


@dataclass
class Fault(Exception):
    """One failed request. Raised inside the client only; `error()` is what leaves it."""

    kind: Kind
    what: str
    status: int | None = None
    hint: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    param: str = ""
    """For `capability`: the parameter to leave out."""

    def error(self, where: str) -> OpsError:
        """The error for the outside, after everything was tried."""
        kinds: dict[Kind, type[OpsError]] = {
            "configuration": InputError,
            "transient": ModelUnavailable,
            "interrupted": ModelUnavailable,
        }
        return kinds.get(self.kind, ModelUnusable)(self.what, where=where, hint=self.hint)


_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|model's context length|exceed_context_size"
    r"|(?:exceeds?|larger than|longer than|beyond|over)\b.{0,60}\bcontext (?:length|window|size)"
    r"|context (?:length|window|size) (?:is )?exceeded|(?:prompt|input) is too long",
    re.IGNORECASE | re.DOTALL,
)
OPTIONAL = ("stream_options", "parallel_tool_calls", "strict", "tool_choice")
"""Parameters that can be left out, in the order in which they are blamed."""
_UNSUPPORTED = re.compile(
    r"not (?:supported|permitted|allowed|implemented)|unsupported|unknown|unrecognized|unexpected|extra|invalid|requires"
    r"|forbidden|no longer",
    re.IGNORECASE,
)


def message_of(body: Any) -> str:
    """The words of an error body, in any of the shapes that servers use."""
    if isinstance(body, Mapping):
        for key in ("error", "message", "detail", "msg"):
            if body.get(key):
                return message_of(body[key])
    if isinstance(body, str):
        return body.strip()
    return json.dumps(body, ensure_ascii=False, default=str)[:1000]


def from_status(status: int, body: Any, headers: Mapping[str, str], sent: frozenset[str]) -> Fault:
    """Sort a response that is not 2xx. `sent`: the optional parameters that the request had."""
    words = _short(message_of(body)) or f"HTTP {status}"
    raw = json.dumps(body, default=str) if not isinstance(body, str) else body
    if status in (401, 403):
        return Fault("configuration", f"the endpoint refused the key ({status}): {words}", status, "set OPENAI_API_KEY")
    if status == 404:
        hint = "check the model's name (--llm) and OPENAI_BASE_URL, which usually ends in /v1"
        return Fault("configuration", f"not found (404): {words}", status, hint)
    if status == 402 or "insufficient_quota" in raw:
        return Fault(
            "unusable", f"the account has no quota left ({status}): {words}", status, "pay, or use another endpoint"
        )
    if _OVERFLOW.search(raw):
        return Fault("overflow", f"the conversation is too long for the model: {words}", status, "use a longer context")
    if status in (400, 413, 422):
        return _rejected(status, words, raw, sent)
    if status in (408, 409, 425, 429) or status >= 500:
        return Fault("transient", f"HTTP {status}: {words}", status, "try again later", dict(headers))
    return Fault("unusable", f"HTTP {status}: {words}", status, "is OPENAI_BASE_URL right?")


def _rejected(status: int, words: str, raw: str, sent: frozenset[str]) -> Fault:
    """A request that the endpoint does not take: a parameter to leave out, or the end."""
    if _UNSUPPORTED.search(raw):
        for name in OPTIONAL:
            if name in sent and re.search(name.replace("_", "[_ ]"), raw, re.IGNORECASE):
                return Fault("capability", f"{name} is not supported: {words}", status, param=name)
    if "tool" in raw and "parser" in raw:
        hint = "start it with --tool-call-parser (SGLang), --enable-auto-tool-choice --tool-call-parser (vLLM)"
        return Fault("configuration", f"the endpoint does not do tool calls: {words}", status, hint)
    return Fault(
        "unusable", f"the endpoint rejects the request ({status}): {words}", status, "`opsagent doctor` checks it"
    )


def from_words(words: str) -> Fault:
    """Sort an error that came inside a stream or a 200 response."""
    if _OVERFLOW.search(words):
        return Fault("overflow", f"the conversation is too long for the model: {_short(words)}")
    return Fault("interrupted", f"the endpoint reported an error: {_short(words)}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    if re.match(r"(?i)\s*<(?:!doctype|html)", text):
        return "an HTML page"
    return line if len(line) <= 300 else line[:300] + "…"
