"""Any OpenAI-compatible endpoint as a `Model`: Chat Completions, streamed if it can, every retry an event.

The SDK sends one request at a time (`max_retries=0`); what to do about a failure is decided and journaled here. Whether
an endpoint can stream, or takes `tool_choice`, is learned from its refusals once and remembered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from opsagent.compaction import compact, size
from opsagent.models.accumulate import Accumulator
from opsagent.models.completion import reply_of
from opsagent.models.faults import Fault, ModelRefused, from_status, from_words, message_of
from opsagent.models.retry import RetryPolicy, retry_after
from opsagent.models.unusable import complaint
from opsagent.models.watch import watched
from opsagent.protocols import Message, Reply
from opsagent.redact import Redactor
from opsagent_tools.clock import Clock, FastClock
from opsagent_tools.errors import ModelUnavailable

Emit = Callable[..., Any]
"""`emit(type, **data)`: model.retry, model.rejected, context.compacted and note events go through it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model is, and how patient to be with it. Times in seconds."""

    model: str
    base_url: str
    api_key: str = "EMPTY"
    connect_s: float = 5.0
    first_s: float = 900.0
    """Until the first byte: a long prompt on a busy server takes minutes, and so does a person who plays the model."""
    stall_s: float = 60.0
    """Between two pieces of a stream."""
    stream: bool = True

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


@dataclass
class _Try:
    """What was tried for one request."""

    number: int = 1
    waited_s: float = 0.0
    broken_streams: int = 0
    whole: bool = False
    """Ask without streaming, this request only."""
    compacted: bool = False


@dataclass
class OpenAIChat:
    """Raises InputError (key, model or URL are wrong), ModelUnavailable (tried long enough), ModelUnusable."""

    endpoint: Endpoint
    emit: Emit = field(default=lambda _type, **_data: None)
    clock: Clock = field(default_factory=FastClock)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    rng: random.Random = field(default_factory=random.Random)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    left_s: Callable[[], float] = field(default=lambda: float("inf"))
    """Seconds that the run's budget still has: a longer wait is not begun."""
    reads: bool = True
    """It reads the conversation (the autopilot does not)."""
    on_text: Callable[[str], None] = field(default=lambda _piece: None)
    """Sees the answer's text while it is streamed; a try that breaks off is followed by a model.retry event."""
    _without: set[str] = field(default_factory=set)
    _limit: int | None = None
    """Characters that fit, once a conversation was too long."""
    _client: openai.OpenAI = field(init=False)
    _redactor: Redactor = field(init=False)

    def __post_init__(self) -> None:
        where = self.endpoint
        self._redactor = Redactor({"OPENAI_API_KEY": where.api_key})
        timeout = httpx2.Timeout(connect=where.connect_s, read=where.first_s, write=60.0, pool=60.0)
        self._client = openai.OpenAI(
            api_key=where.api_key, base_url=where.base_url, timeout=timeout, max_retries=0
        )  # fmt: skip
        if not where.stream:
            self._without.add("stream")

    @property
    def name(self) -> str:
        return self.endpoint.model

    def next(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Reply:
        """The model's answer. One that is no use is complained about once."""
        reply = self._ask(messages, tools)
        wrong = complaint(reply)
        if wrong is None:
            return reply
        self.emit("model.rejected", what=wrong.what, text=reply.text[:500], finish=reply.finish)
        said: list[Message] = [{"role": "assistant", "content": reply.text}] if reply.text.strip() else []
        again = self._ask([*messages, *said, {"role": "user", "content": wrong.nudge}], tools)
        again = replace(again, usage=_sum(reply.usage, again.usage), notes=(*again.notes, f"nudged: {wrong.what}"))
        second = complaint(again)
        if second is None or not second.final:
            return again
        self.emit("model.rejected", what=second.what, text=again.text[:500], finish=again.finish)
        raise ModelRefused(
            f"the model answered twice with {second.what}", where=self.endpoint.host,
            hint="use another model, or follow the runbook with --llm autopilot",
        )  # fmt: skip

    # --- one request, tried until it works or will not -----------------------------------------------------------

    def _ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Reply:
        tried = _Try()
        if self._limit is not None:
            messages = compact(messages, self._limit)
        while True:
            try:
                return self._once(messages, tools, whole=tried.whole)
            except Fault as fault:
                fault.what = self._redactor.clean(fault.what)  # endpoints like to quote the key that they refuse
                shorter = self._handle(fault, tried, messages)
                messages = messages if shorter is None else shorter

    def _handle(self, fault: Fault, tried: _Try, messages: Sequence[Message]) -> Sequence[Message] | None:
        """Prepare the next try (shorter messages, if that is what it takes), or raise what ends the request."""
        if fault.kind == "overflow" and not tried.compacted:
            tried.compacted = True
            self._limit = size(messages) // 2
            shorter = compact(messages, self._limit)
            self.emit("context.compacted", why=fault.what, before=size(messages), after=size(shorter))
            return shorter
        if fault.kind == "capability" and fault.param not in self._without:
            self._without.add(fault.param)
            self.emit("model.retry", why=fault.what, status=fault.status, wait_s=0.0, without=sorted(self._without))
            return None
        if fault.kind == "ambiguous" and not tried.whole:
            tried.whole = True
            self.emit("model.retry", why=fault.what, wait_s=0.0, without=["stream"])
            return None
        if fault.kind in ("transient", "interrupted"):
            self._wait(fault, tried)
            return None
        raise fault.error(self.endpoint.host) from fault

    def _wait(self, fault: Fault, tried: _Try) -> None:
        """Wait as long as the endpoint asks, or as backoff says. Raises ModelUnavailable when that is too long."""
        policy = self.policy
        if fault.kind == "interrupted" and "stream" not in self._without and not tried.whole:
            tried.broken_streams += 1
            tried.whole = tried.broken_streams >= 2
        asked = retry_after(fault.headers, self.now)
        wait = asked if asked else policy.backoff(tried.number, self.rng)
        if tried.number >= policy.attempts:
            raise ModelUnavailable(
                f"{fault.what} (tried {tried.number} times)",
                where=self.endpoint.host,
                hint=fault.hint or "try again later",
            )
        if wait > policy.longest_s or tried.waited_s + wait > policy.total_s or wait > self.left_s():
            raise ModelUnavailable(
                f"{fault.what}; the endpoint asks to wait {wait:.0f} s" if asked else f"{fault.what}; no time is left",
                where=self.endpoint.host, hint=f"resume the run in {wait:.0f} s or later",
            )  # fmt: skip
        self.emit(
            "model.retry", why=fault.what, status=fault.status, attempt=tried.number, wait_s=round(wait, 3),
            retry_after=asked, streaming=not tried.whole and "stream" not in self._without,
        )  # fmt: skip
        self.clock.sleep(wait)
        tried.number += 1
        tried.waited_s += wait

    # --- the wire ------------------------------------------------------------------------------------------------

    def _params(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], stream: bool) -> dict[str, Any]:
        params: dict[str, Any] = {"model": self.endpoint.model, "messages": list(messages)}
        if tools:
            params["tools"] = [_plain(tool) if "strict" in self._without else tool for tool in tools]
            params["tool_choice"] = "auto"
        if stream:
            params |= {"stream": True, "stream_options": {"include_usage": True}}
        return {key: value for key, value in params.items() if key not in self._without}

    def _once(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, whole: bool) -> Reply:
        """One request. Raises Fault."""
        stream = not whole and "stream" not in self._without
        params = self._params(messages, tools, stream)
        sent = {*params, *(("strict",) if any("strict" in tool.get("function", {}) for tool in tools) else ())}
        try:
            raw = self._client.chat.completions.with_raw_response.create(**params)
            kind = raw.headers.get("content-type", "")
            if not stream or "event-stream" not in kind:
                return reply_of(raw.http_response.read(), kind)
            return self._streamed(raw)
        except openai.APIStatusError as error:
            body = error.body if error.body is not None else error.response.text
            raise from_status(error.status_code, body, error.response.headers, frozenset(sent)) from error
        except openai.APITimeoutError as error:
            raise Fault("transient", "the endpoint did not answer in time", hint="is the server overloaded?") from error
        except openai.APIConnectionError as error:
            raise Fault(
                "transient", f"cannot reach the endpoint {self.endpoint.host}: {_root(error)}",
                hint="is the server up, and OPENAI_BASE_URL right?",
            ) from error  # fmt: skip
        except openai.APIError as error:
            raise from_words(message_of(error.body) if error.body else error.message) from error
        except (httpx2.HTTPError, ValueError) as error:
            raise Fault("interrupted", f"the answer broke off or is no completion: {_root(error)}") from error

    def _streamed(self, raw: Any) -> Reply:
        stream = raw.parse()
        total = Accumulator()
        where = self.endpoint
        chunks = (chunk.model_dump(exclude_unset=True, warnings=False) for chunk in stream)
        try:
            for chunk in watched(chunks, first_s=where.first_s, stall_s=where.stall_s, close=stream.close):
                total.add(chunk)
                for piece in total.fresh():
                    self.on_text(piece)
        except openai.APIStatusError:
            raise
        except openai.APIConnectionError as error:
            raise Fault("interrupted", f"the stream broke off: {_root(error)}") from error
        return total.reply()


def _plain(tool: dict[str, Any]) -> dict[str, Any]:
    function = {key: value for key, value in tool.get("function", {}).items() if key != "strict"}
    return {**tool, "function": function}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Tokens of two replies; {} (unknown) if either did not say."""
    return {key: one[key] + other[key] for key in one if key in other} if one and other else {}


def _root(error: BaseException) -> str:
    """The words of the first cause: what the socket or the parser said."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return str(error) or type(error).__name__
