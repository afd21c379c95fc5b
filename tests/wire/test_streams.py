"""Streams that break, and what in a stream is nothing."""

from __future__ import annotations

import pytest
from wire.server import (
    CHUNKED,
    HEAD,
    USAGE,
    Answer,
    call,
    completion,
    delta,
    frame,
    says,
    stream,
)
from wire.talking import calls_of, one_call, talk

HALF = delta(tool_calls=[call('{"path": "/et', name="tail_log", id="a", index=0)])
BROKEN = {
    "socket reset in the middle of the arguments": stream(HALF, done=False, cut=True),
    "chunked body without its end": Answer((CHUNKED, b"%x\r\n" % len(frame(HALF)), frame(HALF), b"\r\n")),
    "error event": stream(HALF, {"error": {"message": "CUDA error", "code": 500}}),
    "no finish reason": stream(HALF),
    "no finish reason and no [DONE]": stream(HALF, done=False),
    "a line that is not JSON": stream(HALF, "{nonsense"),
    "a stall": stream(HALF, 0.8, delta("tool_calls")),
    "nothing at all": Answer((HEAD,)),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_17_a_broken_stream_is_thrown_away_and_asked_again(kind: str) -> None:
    good = one_call(call('{"path": "/x"}', name="tail_log", id="b", index=0))
    made = talk(BROKEN[kind], good, stall_s=0.25)
    assert calls_of(made) == [("b", "tail_log", '{"path": "/x"}')]
    assert made.types() == ["model.retry"]
    assert made.server.hits >= 1


def test_17_after_two_broken_streams_we_ask_without() -> None:
    made = talk(BROKEN["no finish reason"], BROKEN["no finish reason"], completion({"content": "whole"}))
    assert made.reply is not None
    assert [request.get("stream", False) for request in made.server.requests] == [True, True, False]


def test_17_unknown_usage_is_said() -> None:
    made = talk(stream(delta(content="ok"), delta("stop")))
    assert made.reply is not None
    assert made.reply.usage == {}
    assert "usage-unknown" in made.reply.notes


def test_usage_and_the_key_and_no_sdk_retries() -> None:
    made = talk(says("hello"))
    assert made.reply is not None
    assert made.reply.usage == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert "authorization: bearer empty" in made.server.headers[0].lower()
    assert "x-stainless-retry-count: 0" in made.server.headers[0].lower()


def test_comments_empty_lines_and_keepalives_in_a_stream_are_nothing() -> None:
    body = (
        HEAD
        + b": ping\n\n"
        + frame(delta(content="o"))
        + b"\n\n: ping\n\n"
        + frame(delta("stop", content="k"))
        + frame(USAGE)
    )
    made = talk(Answer((body,)))
    assert made.reply is not None
    assert made.reply.text == "ok"
