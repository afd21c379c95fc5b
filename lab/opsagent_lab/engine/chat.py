"""/v1/chat/completions, /v1/completions and /generate: from a request to what the model says, whole or as a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opsagent_lab.engine import answers
from opsagent_lab.engine.serving import Server, prompt_tokens

Sleep = Callable[[float], None]


class BadRequest(Exception):
    """Refused with status 400 and SGLang's words."""

    def __init__(self, message: str, kind: str = "BadRequest") -> None:
        super().__init__(message)
        self.message, self.kind = message, kind


@dataclass(frozen=True, slots=True)
class Reply:
    """One completion, before it is put into JSON."""

    id: str
    model: str
    created: int
    reasoning: str
    content: str
    call: tuple[str, dict[str, Any]] | None
    finish: str
    prompt: int
    completion: int
    thinking: int


def thinks(server: Server, body: Mapping[str, Any]) -> bool:
    """Qwen3 and later think unless they are told not to."""
    architecture = server.launch.shape.architecture
    if not architecture.startswith("Qwen3") or architecture == "Qwen3NextForCausalLM":
        return False
    options = body.get("chat_template_kwargs") or {}
    return options.get("enable_thinking", True) is not False and body.get("reasoning_effort") != "none"


def check(server: Server, tokens: int, max_tokens: int | None) -> None:
    """The length rules, in the order in which SGLang applies them. Raises BadRequest."""
    context, limit = server.limits.context, server.limits.max_prompt_tokens
    if tokens >= context:
        raise BadRequest(f"The input ({tokens} tokens) is longer than the model's context length ({context} tokens).")
    if max_tokens is not None and tokens + max_tokens > context:
        raise BadRequest(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You "
            "requested a total of "
            f"{tokens + max_tokens} tokens: {tokens} tokens from the input messages and {max_tokens} tokens for the "
            "completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit."
        )
    if tokens > limit:
        raise BadRequest(
            f"Input length ({tokens} tokens) exceeds the maximum allowed length ({limit} tokens). "
            "Use a shorter input or enable --allow-auto-truncate."
        )


def complete(server: Server, body: Mapping[str, Any], now: float) -> Reply:
    """What a chat request gets. Raises BadRequest."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("Messages cannot be empty", "BadRequestError")
    tools = body.get("tools") or []
    texts = [answers.text_of(m) for m in messages] + ([json.dumps(tools)] if tools else [])
    tokens = prompt_tokens(texts)
    asked_max = body.get("max_completion_tokens") or body.get("max_tokens")
    check(server, tokens, asked_max)
    room = min(int(asked_max or 10**9), max(1, server.limits.max_request_tokens - tokens - 1))
    reasoning = (
        answers.thoughts(texts[0] if len(messages) == 1 else answers.text_of(messages[-1]))
        if thinks(server, body)
        else ""
    )
    call = answers.tool_call(tools, messages) if body.get("tool_choice") != "none" else None
    content = "" if call else answers.answer(messages)
    if server.limits.garbage:
        content, call = answers.broken(content, server.limits.garbage), None
        if reasoning and server.limits.garbage != "wrong":  # it never closes its thoughts
            reasoning, content = content, ""
    return _shape(server, body, now, tokens, room, reasoning, content, call)


def _shape(
    server: Server, body: Mapping[str, Any], now: float, tokens: int, room: int, reasoning: str, content: str,
    call: tuple[str, dict[str, Any]] | None,
) -> Reply:  # fmt: skip
    """Cut to the room, and put thoughts and calls where the configured parsers put them."""
    s = server.launch.settings
    if call is not None and s.tool_parser is None:
        content, call = _raw_call(*call), None
    thought, said = answers.pieces(reasoning), answers.pieces(content)
    finish = "tool_calls" if call else "stop"
    call_tokens = 18 + 6 * len(call[1]) if call else 0
    if len(thought) + len(said) + call_tokens > room:
        finish, call = "length", None
        thought, said = thought[:room], said[: max(0, room - len(thought))]
    reasoning, content = "".join(thought), "".join(said)
    if reasoning and s.reasoning_parser is None:
        content, reasoning = (f"{reasoning}</think>\n\n{content}" if said or finish != "length" else reasoning), ""
    server.counter += 1
    return Reply(
        id=f"{abs(hash((server.launch.pid, server.counter, now))):032x}"[-32:],
        model=str(body.get("model") or s.served_name),
        created=int(now),
        reasoning=reasoning,
        content=content,
        call=call,
        finish=finish,
        prompt=tokens,
        completion=len(thought) + len(said) + call_tokens + (finish != "length"),
        thinking=len(thought),
    )


def _raw_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as the model writes it; without a parser it stays in the content."""
    inner = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def run(server: Server, reply: Reply, sleep: Sleep, *, warmup: bool = False) -> Iterator[int]:
    """Take the request through the scheduler; yields the number of tokens done so far, now and then."""
    server.enter(reply.prompt, sleep)
    done = 0
    try:
        if not warmup:
            server.warm(sleep)
        sleep(server.prefill_seconds(reply.prompt))
        while done < reply.completion:
            step = min(40, reply.completion - done)
            sleep(step / server.tokens_per_second)
            done += step
            if done % 40 == 0:
                server.decode_line()
            yield done
    finally:
        server.leave(reply.prompt, done)


def usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.prompt,
        "total_tokens": reply.prompt + reply.completion,
        "completion_tokens": reply.completion,
        "prompt_tokens_details": None,
        "reasoning_tokens": reply.thinking,
    }


def _tool_calls(reply: Reply) -> list[dict[str, Any]] | None:
    if reply.call is None:
        return None
    name, arguments = reply.call
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [{"id": f"call_{reply.id[:24]}", "index": 0, "type": "function", "function": function}]


def whole(server: Server, reply: Reply, body: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a chat completion."""
    stop = 248046 if reply.finish == "stop" else None
    message = {
        "role": "assistant",
        "content": reply.content or None,
        "reasoning_content": reply.reasoning or None,
        "tool_calls": _tool_calls(reply),
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(server, reply) if body.get("logprobs") else None,
        "finish_reason": reply.finish,
        "matched_stop": stop,
    }
    return {
        "id": reply.id,
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.model,
        "choices": [choice],
        "usage": usage(reply),
        "metadata": {"weight_version": "default"},
    }


def _logprobs(server: Server, reply: Reply) -> dict[str, Any]:
    low = {"": -0.02, "wrong": -1.9, "repeat": -6.2, "nan": -12.4}[server.limits.garbage]
    return {
        "content": [
            {"token": t, "bytes": list(t.encode()), "logprob": low, "top_logprobs": []}
            for t in answers.pieces(reply.content)[:200]
        ]
    }


def chunks(reply: Reply, steps: Iterator[int], body: Mapping[str, Any]) -> Iterator[bytes]:
    """The same completion as server-sent events, paced by the scheduler."""
    head = {"id": reply.id, "object": "chat.completion.chunk", "created": reply.created, "model": reply.model}

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish,
            "matched_stop": 248046 if finish == "stop" else None,
        }
        return _sse({**head, "choices": [choice], "usage": None})

    said = [("reasoning_content", p) for p in answers.pieces(reply.reasoning)]
    said += [("content", p) for p in answers.pieces(reply.content)]
    sent = 0
    for done in steps:
        if sent == 0:
            yield event({"role": "assistant", "content": ""})
        until = len(said) if done >= reply.completion else min(done, len(said))
        for kind, piece in said[sent:until]:
            yield event({kind: piece})
        sent = max(until, 1)
    for call in _tool_calls(reply) or []:
        yield event({"tool_calls": [call]})
    yield event({"content": None}, reply.finish)
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _sse({**head, "choices": [], "usage": usage(reply)})
    yield b"data: [DONE]\n\n"


def _sse(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
