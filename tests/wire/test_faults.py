"""The OpenAI client against exact bytes: what endpoints do wrong on the wire, and that each fault was really met."""

from __future__ import annotations

import socket
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from wire.server import (
    USAGE,
    Answer,
    WireServer,
    call,
    completion,
    delta,
    fault,
    http,
    says,
    stream,
)
from wire.talking import ASK, NOW, TOOL, NoClock, calls_of, one_call, talk

from opsagent.models.faults import ModelRefused
from opsagent.models.openai_chat import Endpoint, OpenAIChat
from opsagent_tools.errors import InputError, ModelUnavailable, ModelUnusable


def test_1_arguments_that_are_not_json_arrive_untouched() -> None:
    made = talk(one_call(call('{"path": /x}', name="tail_log", id="a", index=0)))
    assert calls_of(made) == [("a", "tail_log", '{"path": /x}')]


def test_2_a_cut_call_says_that_it_was_cut() -> None:
    made = talk(one_call(call('{"path": "/va', name="tail_log", id="a", index=0), finish="length"))
    assert made.reply is not None
    assert made.reply.finish == "length"


def test_3_a_cut_call_that_claims_to_be_whole_is_not_repaired() -> None:
    made = talk(one_call(call('{"path": "/va', name="tail_log", id="a", index=0)))
    assert calls_of(made) == [("a", "tail_log", '{"path": "/va')]
    assert made.reply is not None
    assert made.reply.finish == "tool_calls"


@pytest.mark.parametrize("whole", [False, True])
def test_5_arguments_as_an_object_are_taken_and_noted(whole: bool) -> None:
    entry = call({"path": "/x"}, name="tail_log", id="a", index=0)
    message = {"content": None, "tool_calls": [entry]}
    made = talk(completion(message, "tool_calls") if whole else one_call(entry))
    assert calls_of(made) == [("a", "tail_log", {"path": "/x"})]
    assert made.reply is not None
    assert "arguments-object" in made.reply.notes


def test_7_equal_ids_and_no_ids_become_own_ids_and_a_doubled_call_is_one() -> None:
    made = talk(
        one_call(
            call('{"path": "/a"}', name="tail_log", id="same", index=0),
            call('{"path": "/b"}', name="tail_log", id="same", index=1),
            call('{"path": "/c"}', name="tail_log", id="", index=2),
            call('{"path": "/a"}', name="tail_log", id="other", index=3),
        )
    )
    found = calls_of(made)
    assert [arguments for _, _, arguments in found] == ['{"path": "/a"}', '{"path": "/b"}', '{"path": "/c"}']
    assert len({ident for ident, _, _ in found} - {""}) == 3
    assert made.reply is not None
    assert {"id-used-twice", "empty-id", "duplicate-call:tail_log"} <= set(made.reply.notes)


def test_8_deltas_without_index() -> None:
    made = talk(
        one_call(
            call("", name="tail_log", id="a"), call('{"path":'), call(' "/x"}'), call('{"n": 1}', name="other", id="b")
        )
    )
    assert calls_of(made) == [("a", "tail_log", '{"path": "/x"}'), ("b", "other", '{"n": 1}')]


def test_8_a_first_index_of_1() -> None:
    made = talk(one_call(call('{"path":', name="tail_log", id="a", index=1), call(' "/x"}', index=1)))
    assert calls_of(made) == [("a", "tail_log", '{"path": "/x"}')]


def test_8_every_call_with_index_0() -> None:
    made = talk(
        one_call(call("{}", name="tail_log", id="a", index=0), call('{"n": 1}', name="tail_log", id="b", index=0))
    )
    assert calls_of(made) == [("a", "tail_log", "{}"), ("b", "tail_log", '{"n": 1}')]


def test_8_repeated_role_name_and_id_are_not_joined() -> None:
    entries = [call(text, name="tail_log", id="a", index=0) for text in ('{"path"', ': "/x', '"}')]
    made = talk(stream(*[delta(role="assistant", tool_calls=[e]) for e in entries], delta("tool_calls"), USAGE))
    assert calls_of(made) == [("a", "tail_log", '{"path": "/x"}')]


@pytest.mark.parametrize(
    "ambiguous",
    [
        one_call(call('{"path": "/x"}', name="tail_log", id="a", index=0), call('{"path": "/x"}', index=0)),
        one_call(call('{"n": 1}', name="tail_log", id="a", index=0), call('{"n": 2}', name="other", index=0)),
        one_call(call('{"n": 1}', id="a", index=0)),
        stream(delta(role="assistant", content=""), delta("tool_calls"), USAGE),
    ],
    ids=["arguments doubled", "two calls in one", "no name", "call without arguments dropped"],
)
def test_8_what_cannot_be_told_apart_is_asked_once_without_streaming(ambiguous: Answer) -> None:
    whole = completion({"tool_calls": [call("{}", name="tail_log", id="a")]}, "tool_calls")
    made = talk(ambiguous, whole)
    assert calls_of(made) == [("a", "tail_log", "{}")]
    assert [request.get("stream", False) for request in made.server.requests] == [True, False]
    assert made.types() == ["model.retry"]


def test_9_text_beside_a_call_is_kept() -> None:
    made = talk(
        stream(
            delta(content="I look "), delta(content="first."),
            delta(tool_calls=[call("{}", name="tail_log", id="a", index=0)]), delta("tool_calls"), USAGE,
        )
    )  # fmt: skip
    assert made.reply is not None
    assert made.reply.text == "I look first."
    assert len(made.reply.calls) == 1


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "tail_log", "arguments": {}}\n</tool_call>',
        '{"name": "tail_log", "arguments": {"path": "/x"}}',
        "<function=tail_log>{}</function>",
        '[TOOL_CALLS][{"name": "tail_log"}]',
    ],
)
def test_9_a_call_as_text_is_complained_about_once_and_never_made(text: str) -> None:
    made = talk(says(text), says(text))
    assert made.reply is not None
    assert made.reply.calls == ()
    assert made.reply.text == text
    assert made.types() == ["model.rejected"]
    assert [m["role"] for m in made.server.requests[1]["messages"]] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    "answer",
    [
        stream(delta(refusal="I cannot"), delta("stop"), USAGE),
        stream(delta(content=""), delta("content_filter"), USAGE),
        says(""),
        stream(delta(reasoning_content="hm"), delta("stop"), USAGE),
        completion({"content": None, "refusal": "no"}),
        completion({"content": None}),
    ],
    ids=["refusal", "content filter", "empty", "only reasoning", "refusal whole", "null content"],
)
def test_10_an_answer_of_no_use_is_asked_again_once(answer: Answer) -> None:
    made = talk(answer, answer)
    assert isinstance(made.error, ModelRefused)
    assert made.error.exit_code == 8
    assert made.types() == ["model.rejected", "model.rejected"]
    better = talk(answer, says("done"))
    assert better.reply is not None
    assert better.reply.text == "done"


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"Retry_After": "1"}, [1.0]),
        ({"retry_after": "2.5"}, [2.5]),
        ({"retry_after_ms": "1500", "Retry_After": "9"}, [1.5]),
        ({"Retry_After": "121"}, [121.0]),
        ({"Retry_After": format_datetime(NOW + timedelta(seconds=40), usegmt=True)}, [40.0]),
        ({"Retry_After": format_datetime(NOW, usegmt=True), "Date": "Sun, 01 Mar 2026 11:59:30 GMT"}, [30.0]),
    ],
)
def test_11_rate_limits_are_obeyed(headers: dict[str, str], waits: list[float]) -> None:
    made = talk(fault(429, "slow down", **headers), says())
    assert made.reply is not None
    assert made.waits == waits
    assert made.events[0][1]["status"] == 429


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Retry_After": "0"},
        {"Retry_After": "soon"},
        {"Retry_After": "-5"},
        {"Retry_After": format_datetime(NOW - timedelta(days=1), usegmt=True)},
    ],
    ids=["none", "0", "rubbish", "negative", "past"],
)
def test_11_without_a_usable_time_we_back_off(headers: dict[str, str]) -> None:
    made = talk(fault(429, **headers), fault(429, **headers), says())
    assert made.reply is not None
    assert len(made.waits) == 2
    assert 0.3 < made.waits[0] < made.waits[1] < 2


def test_11_a_wait_beyond_the_cap_ends_with_the_time() -> None:
    made = talk(fault(429, "slow down", Retry_After="3600"))
    assert isinstance(made.error, ModelUnavailable)
    assert "3600" in made.error.what
    assert made.error.exit_code == 3
    assert made.waits == []


def test_11_a_wait_beyond_the_budget_is_not_begun() -> None:
    made = talk(fault(429, Retry_After="20"), left_s=lambda: 10.0)
    assert isinstance(made.error, ModelUnavailable)
    assert made.waits == []


def test_11_no_quota_is_not_waited_for() -> None:
    made = talk(http(429, '{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'))
    assert isinstance(made.error, ModelUnusable)


@pytest.mark.parametrize("status", [500, 502, 503, 529, 408])
def test_12_a_sick_endpoint_is_tried_again_with_bounded_backoff(status: int) -> None:
    made = talk(fault(status), fault(status), says())
    assert made.reply is not None
    assert len(made.waits) == 2
    ended = talk(*[fault(status)] * 6)
    assert isinstance(ended.error, ModelUnavailable)
    assert ended.types() == ["model.retry"] * 5
    assert all(0 < wait <= 30 for wait in ended.waits)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/v1", "https://127.0.0.1:{tls}/v1", "http://no-such-host.invalid/v1"]
)
def test_12_an_endpoint_that_cannot_be_reached(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with WireServer([]) as plain:
        tls = int(plain.url.split(":")[2].split("/")[0])
        clock = NoClock()
        client = OpenAIChat(Endpoint("m", url.format(port=port, tls=tls), first_s=2.0, connect_s=2.0), clock=clock)
        with pytest.raises(ModelUnavailable) as caught:
            client.next(ASK, [])
    assert caught.value.exit_code == 3
    assert len(clock.waits) == 5


def test_12_an_endpoint_that_does_not_answer_in_time() -> None:
    silent = Answer((1.0,))
    made = talk(silent, says(), first_s=0.3)
    assert made.reply is not None
    assert len(made.waits) == 1


OVERFLOWS = {
    "OpenAI": http(400, '{"error": {"message": "This model\'s maximum context length is 8192 tokens. However, your messages '
                        'resulted in 9000 tokens.", "code": "context_length_exceeded"}}'),
    "vLLM": http(400, '{"object": "error", "message": "This model\'s maximum context length is 4096 tokens. However, you '
                      'requested 5000 tokens", "type": "BadRequestError", "code": 400}'),
    "SGLang": http(400, '{"object":"error","message":"The input (5000 tokens) is longer than the model\'s context length '
                        '(4096 tokens).","type":"BadRequestError","code":400}'),
    "SGLang total": http(400, '{"message": "Requested token count exceeds the model\'s maximum context length of 4096"}'),
    "llama.cpp": http(400, '{"error":{"message":"the request exceeds the available context size",'
                           '"type":"exceed_context_size_error"}}'),
    "in the stream": stream({"error": {"message": "The input is longer than the model's context length", "code": 400}}),
}  # fmt: skip


@pytest.mark.parametrize("words", OVERFLOWS)
def test_13_a_conversation_that_is_too_long_is_shortened_once(words: str) -> None:
    long: list[dict[str, Any]] = [*ASK]
    for n in range(12):
        long.append({"role": "assistant", "content": "", "tool_calls": [{"id": f"c{n}", "type": "function",
                     "function": {"name": "tail_log", "arguments": "{}"}}]})  # fmt: skip
        long.append({"role": "tool", "tool_call_id": f"c{n}", "content": "<<<BEGIN x\n" + "y" * 20_000 + "\n<<<END x"})
    made = talk(OVERFLOWS[words], says(), messages=long)
    assert made.reply is not None
    assert "context.compacted" in made.types()
    first, second = (len(str(request["messages"])) for request in made.server.requests)
    assert second < first * 0.6
    assert made.server.requests[1]["messages"][:2] == ASK
    ended = talk(OVERFLOWS[words], OVERFLOWS[words], messages=long)
    assert isinstance(ended.error, ModelUnusable)


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("tool_choice is not supported", "tool_choice"),
        ("Unknown parameter: 'stream_options'", "stream_options"),
        ("stream_options: extra fields not permitted", "stream_options"),
    ],
)
def test_14_what_an_endpoint_does_not_take_is_left_out_from_then_on(words: str, gone: str) -> None:
    with WireServer([fault(400, words), says("a"), says("b")]) as server:
        events: list[tuple[str, dict[str, Any]]] = []
        client = OpenAIChat(Endpoint("m", server.url), emit=lambda kind, **data: events.append((kind, data)))
        assert client.next(ASK, [TOOL]).text == "a"
        assert client.next(ASK, [TOOL]).text == "b"
        assert [gone in request for request in server.requests] == [True, False, False]
    assert events[0][0] == "model.retry"
    assert events[0][1]["without"] == [gone]


def test_14_strict_is_taken_out_of_the_schemas() -> None:
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}  # type: ignore[dict-item]
    with WireServer([fault(400, "'strict' is not supported in tool functions"), says("a")]) as server:
        OpenAIChat(Endpoint("m", server.url)).next(ASK, [strict])
        assert ["strict" in request["tools"][0]["function"] for request in server.requests] == [True, False]


def test_14_an_endpoint_without_tool_calls_says_how_to_start_it() -> None:
    words = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    made = talk(fault(400, words), fault(400, words))
    assert isinstance(made.error, InputError)
    assert "--tool-call-parser" in made.error.hint


@pytest.mark.parametrize("status", [401, 403, 404])
def test_15_a_wrong_key_or_model_ends_at_once(status: int) -> None:
    made = talk(fault(status, "The model `m` does not exist"))
    assert isinstance(made.error, InputError)
    assert made.error.exit_code == 2
    assert made.waits == []


def test_15_a_key_that_the_endpoint_quotes_is_not_repeated() -> None:
    with WireServer([fault(401, "Incorrect API key provided: letmein-12345")]) as server:
        client = OpenAIChat(Endpoint("m", server.url, "letmein-12345"))
        with pytest.raises(InputError) as caught:
            client.next(ASK, [])
    assert "letmein" not in caught.value.what


@pytest.mark.parametrize(
    "answer",
    [
        http(200, "<!doctype html><html><body>Welcome to nginx</body></html>", kind="text/html"),
        http(200, '{"choices": []}'),
        http(200, '{"choices": null}'),
        http(200, '{"choices": [{"index": 0, "message": null}]}'),
        http(200, "[]"),
        http(200, "true"),
    ],
    ids=["html", "empty choices", "null choices", "null message", "list", "true"],
)
def test_16_a_200_that_is_no_completion_is_a_clear_error(answer: Answer) -> None:
    made = talk(answer)
    assert isinstance(made.error, ModelUnusable)
    assert made.error.exit_code == 8


def test_16_an_error_with_status_200_is_tried_again() -> None:
    sick = http(200, '{"error": {"message": "worker died", "code": 500}}')
    made = talk(sick, says())
    assert made.reply is not None
    assert "worker died" in made.events[0][1]["why"]


def test_16_a_whole_answer_although_a_stream_was_asked_for_is_fine() -> None:
    made = talk(completion({"content": "whole"}))
    assert made.reply is not None
    assert made.reply.text == "whole"
