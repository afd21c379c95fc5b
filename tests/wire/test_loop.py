"""What the loop does with a model that is wrong on the wire: no effect by guess, an error result, a count, an end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from loop.world import CounterHost, make_run
from wire.server import USAGE, Answer, WireServer, call, completion, delta, says, stream

from opsagent.loop import drive
from opsagent.models.openai_chat import Endpoint, OpenAIChat
from opsagent.run import Run
from opsagent_tools.errors import ExitCode, ModelUnusable

STEP = """
    ## Raise {#raise}

    ```call
    tool: add
    args: {by: "${goal}"}
    as: added
    ```
    ```check
    - added.value == goal
    ```
"""
GOOD = {"by": "${goal}", "host": "box", "as": "added"}


def calling(*made: tuple[str, Any], finish: str = "tool_calls") -> Answer:
    """A streamed answer with these calls (name, raw arguments)."""
    entries = [call(arguments, name=name, id=f"call_{n}", index=n) for n, (name, arguments) in enumerate(made)]
    return stream(*[delta(tool_calls=[entry]) for entry in entries], delta(finish), USAGE)


END = [calling(("add", json.dumps(GOOD))), says("made"), calling(("finish", "{}"))]


def drive_with(*script: Answer) -> tuple[Run, CounterHost, ExitCode, WireServer]:
    host = CounterHost()
    run = make_run(STEP, host=host)
    with WireServer(script) as server:
        code = drive(run, OpenAIChat(Endpoint("m", server.url), emit=run.emit))
        assert len(server.requests) == len(script), f"{len(server.requests)} of {len(script)} answers were asked for"
    return run, host, code, server


def rejected(run: Run) -> list[dict[str, Any]]:
    return [event.data for event in run.journal.events() if event.type == "model.rejected"]


def results(server: WireServer) -> list[str]:
    """What the model was told about its calls, in the last request."""
    return [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "tool"]


def test_a_good_model_does_the_work() -> None:
    run, host, code, _ = drive_with(*END)
    assert code is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]
    assert run.journal.state.usage.tokens_in == 9


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ('{"by": 2', "malformed"),
        ('{"by": two}', "malformed"),
        ("[2]", "not a JSON object"),
        ('{"by": "many", "host": "box"}', "by"),
        ('{"by": 2, "extra": 1, "host": "box"}', "extra"),
        ('{"by": 2, "host": "moon"}', "moon"),
    ],
    ids=["1 and 3 cut", "1 broken", "no object", "4 wrong type", "4 extra key", "unknown host"],
)
def test_1_3_4_arguments_that_cannot_be_used_are_an_error_result(arguments: str, word: str) -> None:
    run, host, code, server = drive_with(calling(("add", arguments)), *END)
    assert code is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]
    assert len(rejected(run)) == 1
    assert word in results(server)[0]
    assert "truncated" not in results(server)[0]
    for message in server.requests[1]["messages"]:
        for made in message.get("tool_calls", []):
            json.loads(made["function"]["arguments"])  # some servers refuse a history that is not JSON


def test_2_of_a_cut_answer_no_call_is_made() -> None:
    good = json.dumps(GOOD)
    run, host, code, server = drive_with(calling(("add", good), ("add", '{"by'), finish="length"), *END)
    assert code is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]
    asked = [m for m in server.requests[1]["messages"] if m.get("tool_calls")]
    answered = {m["tool_call_id"] for m in server.requests[1]["messages"] if m["role"] == "tool"}
    assert {made["id"] for m in asked for made in m["tool_calls"]} == answered
    assert "cut" in server.requests[1]["messages"][-1]["content"]
    assert run.journal.state.usage.calls == 1


@pytest.mark.parametrize("name", ["Add", "functions.add", "ad", "shell", ""])
def test_6_an_unknown_tool_is_an_error_with_the_nearest_name(name: str) -> None:
    if not name:  # a nameless call cannot be told from a broken stream: it is asked again without streaming
        whole = completion({"tool_calls": [call(json.dumps(GOOD), name="", id="a")]}, "tool_calls")
        run, host, code, _ = drive_with(calling(("", json.dumps(GOOD))), whole, *END)
    else:
        run, host, code, server = drive_with(calling((name, json.dumps(GOOD))), *END)
        assert "no tool" in results(server)[0]
    assert code is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]
    assert len(rejected(run)) == 1


def test_7_a_call_that_is_sent_twice_is_made_once() -> None:
    twice = calling(("add", json.dumps(GOOD)), ("add", json.dumps(GOOD)))
    _, host, code, _ = drive_with(twice, *END[1:])
    assert code is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]


def test_5_arguments_as_an_object_are_executed() -> None:
    _, host, code, _ = drive_with(calling(("add", GOOD)), *END[1:])
    assert code is ExitCode.VERIFIED
    assert host.effects == ["c1+2"]


def test_unusable_calls_in_a_row_end_the_run() -> None:
    host = CounterHost()
    run = make_run(STEP, host=host)
    with WireServer([calling(("add", "{"))] * 5) as server:
        with pytest.raises(ModelUnusable) as caught:
            drive(run, OpenAIChat(Endpoint("m", server.url), emit=run.emit))
        assert len(server.requests) == 5
    assert caught.value.exit_code == 8
    assert host.effects == []
