"""What a chat request brought back: content, thoughts, tool calls and usage, from a whole or a streamed answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.sglang.diagnosis.degenerate import Judged, judge
from opsagent_tools.verify.api import Reply


@dataclass(slots=True)
class Answer:
    """One answer. `finish` is SGLang's finish_reason; `done` that a stream ended with [DONE]."""

    status: int
    content: str = ""
    reasoning: str = ""
    finish: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float = 0.0
    first_s: float = 0.0
    chunks: int = 0
    done: bool = False
    words: str = ""
    """Why there is no answer."""

    @property
    def ok(self) -> bool:
        return self.status == 200 and not self.words

    @property
    def text(self) -> str:
        """Everything that the model wrote."""
        return self.reasoning + self.content

    @property
    def said(self) -> str:
        """The answer proper: without thoughts that a missing parser left in the content."""
        return self.content.rpartition("</think>")[2].strip()


def judged(answer: Answer, prompt: str) -> Judged:
    """Whether content or thoughts are degenerate. A tool call is an answer without a text."""
    if answer.tool_calls:
        return Judged()
    return judge(answer.content, answer.reasoning, prompt=prompt, finish=answer.finish, tokens=answer.completion_tokens)


def whole(reply: Reply) -> Answer:
    """Answer of a request without streaming."""
    value = reply.json
    answer = Answer(reply.status, seconds=reply.total_s, first_s=reply.first_byte_s)
    choices = value.get("choices") if isinstance(value, dict) else None
    if not reply.ok or not choices:
        answer.words = reply.words or "an answer without choices"
        return answer
    message = choices[0].get("message") or {}
    answer.content = message.get("content") or choices[0].get("text") or ""
    answer.reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    answer.tool_calls = message.get("tool_calls") or []
    answer.finish = choices[0].get("finish_reason") or ""
    _usage(answer, value.get("usage"))
    return answer


def streamed(reply: Reply) -> Answer:
    """Answer of a request with `stream: true`. An error inside the 200 stream is an error."""
    answer = Answer(reply.status, seconds=reply.total_s, first_s=reply.first_byte_s)
    if not reply.ok:
        answer.words = reply.words
        return answer
    for line in reply.body.splitlines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            answer.done = True
            continue
        try:
            chunk = json.loads(data)
        except ValueError:
            answer.words = "a chunk of the stream is not JSON"
            continue
        if not isinstance(chunk, dict):
            continue
        if "error" in chunk:
            answer.words = str(chunk["error"])[:300]
        _usage(answer, chunk.get("usage"))
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            answer.content += delta.get("content") or ""
            answer.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
            answer.finish = choice.get("finish_reason") or answer.finish
            answer.chunks += 1
    return answer


def _usage(answer: Answer, usage: Any) -> None:
    if isinstance(usage, dict):
        answer.prompt_tokens = usage.get("prompt_tokens", answer.prompt_tokens)
        answer.completion_tokens = usage.get("completion_tokens", answer.completion_tokens)
