"""A streamed answer is the same however it was cut into pieces."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire.server import HEAD, USAGE, Answer, WireServer, delta, frame
from wire.server import call as entry

from opsagent.models.accumulate import Accumulator, numbered
from opsagent.models.completion import reply_of
from opsagent.models.faults import Fault
from opsagent.models.openai_chat import Endpoint, OpenAIChat
from opsagent.protocols import Reply

arguments = st.dictionaries(
    st.text(max_size=6), st.text(max_size=12) | st.integers() | st.lists(st.text(max_size=4)), max_size=3
)
made_calls = st.lists(st.tuples(st.sampled_from(["tail_log", "preflight"]), arguments), min_size=1, max_size=4)


def feed(chunks: list[dict[str, Any]]) -> Reply:
    total = Accumulator()
    for chunk in chunks:
        total.add(chunk)
    return total.reply()


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(places)] or [""]


@settings(max_examples=150, deadline=None)
@given(made_calls, st.lists(st.integers(0, 1000), max_size=8), st.sampled_from(["index", "id", "both"]), st.booleans())
def test_cut_anywhere_with_index_or_id(
    wanted: list[tuple[str, dict[str, Any]]], cuts: list[int], by: str, repeat: bool
) -> None:
    chunks: list[dict[str, Any]] = []
    for number, (name, args) in enumerate(wanted):
        for place, piece in enumerate(pieces(json.dumps(args), cuts)):
            first = place == 0 or repeat
            made = entry(piece, name=name if first else None, id=f"id{number}" if first and by != "index" else None,
                         index=None if by == "id" else number)  # fmt: skip
            chunks.append(delta(tool_calls=[made]))
    reply = feed([*chunks, delta("tool_calls")])
    unique = {json.dumps([name, args], sort_keys=True): (name, args) for name, args in wanted}
    assert [(c.name, json.loads(str(c.arguments))) for c in reply.calls] == list(unique.values())
    assert len({c.id for c in reply.calls}) == len(reply.calls)


@settings(max_examples=150, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda x: st.lists(x, max_size=3) | st.dictionaries(
                        st.sampled_from(["choices", "delta", "tool_calls", "function", "name", "index", "id", "usage",
                                         "arguments", "content", "finish_reason", "error", "message"]), x, max_size=4),
                    max_leaves=20))  # fmt: skip
def test_any_json_is_a_reply_or_a_fault(value: Any) -> None:
    total = Accumulator()
    try:
        if isinstance(value, dict):
            total.add(value)
            total.reply()
    except Fault:
        pass
    with contextlib.suppress(Fault):
        reply_of(json.dumps(value))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_reply_or_a_fault(text: str) -> None:
    with pytest.raises(Fault):
        reply_of("x" + text)


@pytest.mark.parametrize(
    "odd", [3, "x", {"a": 1}, [3], [None], [{"function": 3}], [{"function": {"name": 3, "arguments": 4}}]]
)
def test_odd_calls_are_no_crash(odd: Any) -> None:
    with contextlib.suppress(Fault):
        feed([delta(tool_calls=odd), delta("tool_calls")])
    with contextlib.suppress(Fault):
        reply_of(json.dumps({"choices": [{"message": {"tool_calls": odd}, "finish_reason": "tool_calls"}]}))


def test_content_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, 3]
    assert reply_of(json.dumps({"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]})).text == "ab"


def test_bytes_one_at_a_time_with_crlf_and_split_characters() -> None:
    body = b"".join(
        frame(chunk).replace(b"\n", b"\r\n")
        for chunk in (delta(content="héllo 世"), delta(content="界👍"), delta("stop"), USAGE, "[DONE]")
    )
    script = [Answer((HEAD, *(bytes([byte]) for byte in body)))]
    with WireServer(script) as server:
        assert OpenAIChat(Endpoint("m", server.url)).next([{"role": "user", "content": "u"}], []).text == "héllo 世界👍"


def test_ids_are_kept_where_they_are_good() -> None:
    calls, notes = numbered([("a", "x", "{}"), ("a", "x", '{"n": 1}'), ("", "x", '{"n": 2}'), ("b", "x", "{}")])
    assert next(call.id for call in calls) == "a"
    assert len({call.id for call in calls}) == 3
    assert notes == ("id-used-twice", "empty-id", "duplicate-call:x")
