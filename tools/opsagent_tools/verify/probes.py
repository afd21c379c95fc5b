"""The probes of a verification: small questions whose answers can be judged without a model's opinion."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.sglang.diagnosis.degenerate import Judged, repeated_token
from opsagent_tools.verify.answer import Answer, judged, streamed, whole
from opsagent_tools.verify.api import Api
from opsagent_tools.verify.server import About

SUM = "What is 17*23? Answer with the number only."
SUM_ANSWER = "391"
STORY = "Describe in three or four sentences how a bicycle stays upright."
NO_THINKING: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@dataclass(frozen=True, slots=True)
class Found:
    """Outcome of one probe. `ok` None: it does not apply here. `degenerate`: why the text is garbage, or ""."""

    probe: str
    ok: bool | None
    detail: str
    degenerate: str = ""
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """What every probe needs."""

    api: Api
    about: About
    model: str
    first_s: float = 600.0
    """Limit for the first answer: kernels compile then."""

    def chat(self, prompt: str, *, timeout_s: float = 300.0, max_tokens: int = 64, **more: Any) -> Answer:
        messages = [{"role": "user", "content": prompt}]
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": max_tokens, **more}
        reply = self.api.chat(timeout_s=timeout_s, **body)
        return streamed(reply) if more.get("stream") else whole(reply)


def arithmetic(bench: Bench) -> Found:
    """A chat with a known answer, thinking off. It is the first request: it may be slow, and that is a fact, not a fault."""
    answer = bench.chat(SUM, timeout_s=bench.first_s, max_tokens=64, **NO_THINKING)
    facts = {"first_answer_s": answer.seconds}
    if not answer.ok:
        return Found("arithmetic", False, f"no answer: {answer.words}", seconds=answer.seconds)
    found = judged(answer, SUM)
    if not found.why and not answer.said and answer.finish == "length":  # it thinks although it was told not to
        answer = bench.chat(SUM, max_tokens=2048)
        if not answer.ok:
            return Found("arithmetic", False, f"no answer: {answer.words}", seconds=answer.seconds)
        found = judged(answer, SUM)
    right = SUM_ANSWER in answer.said.replace(",", "").replace(" ", "")
    shown = " ".join(answer.said.split())[:80]
    detail = f"17*23 → {shown!r}, {answer.seconds:.1f} s"
    if right and not found.why and answer.finish == "length":
        found, detail = Judged("no-end", "content"), f"{detail}: right, but it does not stop"
    elif found.why in SILENT_KINDS or found.part == "reasoning":
        detail = f"{detail}: {_silence(bench, found, answer)}"
    why = found.why or ("" if right else "wrong")
    return Found("arithmetic", not why, detail, why, answer.seconds, facts)


SILENT_KINDS = ("empty", "no-text")


def prose(bench: Bench) -> Found:
    """Free text, twice: it must not loop, be empty or wander through scripts, and the second must not be worse."""
    found: list[Judged] = []
    total = rate = 0.0
    for _ in range(2):
        answer = bench.chat(STORY, max_tokens=220, **NO_THINKING)
        if not answer.ok:
            return Found("prose", False, f"no answer: {answer.words}", seconds=answer.seconds)
        total += answer.seconds
        rate = (answer.completion_tokens or 0) / answer.seconds if answer.seconds > 0 else 0.0
        found.append(judged(answer, STORY))
    facts = {"tokens_per_s": round(rate, 1)} if rate else {}
    bad = found[0] if found[0].why else found[1]
    if not bad.why:
        return Found("prose", True, "readable, twice", "", total, facts)
    which = "" if found[0].why else " (only the second answer, which comes from the cache)"
    why, words = bad.why, _silence(bench, bad, answer) if bad.why in SILENT_KINDS else bad.words
    if bad.why == "no-text" and words.startswith("one token"):
        why = "repeated"
    return Found("prose", False, f"degenerate: {words}{which}", why, total, facts)


def _silence(bench: Bench, found: Judged, answer: Answer) -> str:
    """Words for an answer without text: which token it was, when it was one over and over that decodes to nothing.

    `/generate` of 0.5.9 to 0.5.23 returns `output_ids` beside the text (managers/tokenizer_manager.py).
    """
    if found.why != "no-text":
        return found.words
    words = f"{answer.completion_tokens} tokens and no text"
    options = {"temperature": 0, "max_new_tokens": 64}
    reply = bench.api.post("/generate", {"text": STORY, "sampling_params": options}, timeout_s=120)
    ids = reply.json.get("output_ids") if reply.ok and isinstance(reply.json, dict) else None
    if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
        return f"{words} (special tokens, or numbers that the tokenizer does not have)"
    token = repeated_token(ids)
    if token is not None:
        return f"one token repeated (number {token}), which is no text"
    return f"{words}: token numbers {', '.join(map(str, ids[:4]))} …"


def thinking(bench: Bench) -> Found:
    """Does it think unless told not to, do the thoughts come apart from the answer, and can they be switched off?"""
    on = bench.chat(SUM, max_tokens=1024)
    off = bench.chat(SUM, max_tokens=64, **NO_THINKING)
    if not on.ok or not off.ok:
        return Found("thinking", False, f"no answer: {on.words or off.words}")
    leaked = "</think>" in on.content or on.content.lstrip().startswith("<think>")
    thinks = bool(on.reasoning.strip()) or leaked
    facts = {"thinks_by_default": thinks, "thinking_apart": bool(on.reasoning.strip())}
    seconds = on.seconds + off.seconds
    garbage = judged(on, SUM)
    if garbage.why:  # whether garbage is thought or said tells nothing about the parser
        return Found("thinking", False, f"degenerate: {garbage.words}", garbage.why, seconds)
    if leaked:
        return Found(
            "thinking", False, "thoughts stand in the content: --reasoning-parser is missing", "", seconds, facts
        )
    if "</think>" in off.content or off.reasoning.strip():
        return Found("thinking", False, "enable_thinking=false does not switch it off", "", seconds, facts)
    detail = "on by default, apart from the answer, can be switched off" if thinks else "does not think"
    return Found("thinking", True, detail, "", seconds, facts)


def tool_call(bench: Bench) -> Found:
    """One tool that the question needs. Without a parser the call stays in the text, which is said, not failed."""
    parser = bench.about.info.get("tool_call_parser")
    answer = bench.chat("What is the weather in Paris? Use the tool.", max_tokens=256, tools=[WEATHER], **NO_THINKING)
    if not answer.ok:
        return Found("tool_call", False, f"no answer: {answer.words}", seconds=answer.seconds)
    if answer.tool_calls:
        function = answer.tool_calls[0].get("function") or {}
        try:
            arguments = json.loads(function.get("arguments") or "")
        except ValueError:
            return Found("tool_call", False, "the arguments are not JSON", seconds=answer.seconds)
        good = function.get("name") == "get_weather" and "paris" in str(arguments).lower()
        return Found("tool_call", good, f"{function.get('name')}({arguments})", seconds=answer.seconds)
    if not parser:
        return Found("tool_call", None, "no --tool-call-parser: calls stay in the text", seconds=answer.seconds)
    raw = "<tool_call>" in answer.content or "<function=" in answer.content
    detail = f"the call stays in the text although the parser is {parser}" if raw else "the model did not call the tool"
    return Found("tool_call", False, detail, judged(answer, "").why, answer.seconds)


def streaming(bench: Bench) -> Found:
    """Chunks, a usage at the end, and [DONE]."""
    answer = bench.chat(STORY, max_tokens=64, stream=True, stream_options={"include_usage": True}, **NO_THINKING)
    if not answer.ok:
        return Found("streaming", False, f"no stream: {answer.words}", seconds=answer.seconds)
    good = answer.done and answer.chunks > 1
    detail = (
        f"{answer.chunks} chunks, first after {answer.first_s:.2f} s" if good else "the stream did not end with [DONE]"
    )
    return Found(
        "streaming", good, detail, judged(answer, STORY).why, answer.seconds, {"first_token_s": answer.first_s}
    )


def long_prompt(bench: Bench) -> list[Found]:
    """A prompt near the longest that must work, and one over the limit, which must be refused with 400 and words."""
    context = bench.about.context_len
    if not context:
        return [Found("long_prompt", None, "the server does not say its context length")]
    longest = min(context, bench.about.pool_tokens or context)
    sample = bench.chat(_words(200) + "Answer with OK.", max_tokens=4, **NO_THINKING)
    if not sample.ok or not sample.prompt_tokens:
        return [Found("long_prompt", False, f"no usage to measure by: {sample.words}")]
    per_word = max(0.2, (sample.prompt_tokens - 12) / 200)
    near = bench.chat(
        _words(int((longest - 200) * 0.92 / per_word)) + "Answer with OK.", timeout_s=900, max_tokens=8, **NO_THINKING
    )
    found = [
        Found(
            "long_prompt", near.ok, f"{near.prompt_tokens} of {longest} tokens, {near.seconds:.1f} s", "", near.seconds
        )
        if near.ok
        else Found("long_prompt", False, f"a prompt of about 92 % of {longest} tokens: {near.words}")
    ]
    over = bench.chat(
        _words(int(context * 1.1 / per_word)) + "Answer with OK.", timeout_s=300, max_tokens=8, **NO_THINKING
    )
    detail = f"{over.status}: {over.words}" if not over.ok else "a prompt over the context was accepted"
    found.append(Found("over_limit", over.status == 400, detail[:300], "", over.seconds))
    if longest < context:
        found[0] = Found(
            **{**_dict(found[0]), "detail": f"{found[0].detail}; the pool is smaller than the context ({context})"}
        )
    return found


def _words(count: int) -> str:
    return " ".join(f"word{i % 7}" if i % 7 else "and" for i in range(max(1, count))) + "\n"


def _dict(found: Found) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__dataclass_fields__}


QUICK: tuple[Callable[[Bench], Found], ...] = (arithmetic, prose)
FULL: tuple[Callable[[Bench], Found], ...] = (thinking, tool_call, streaming)
