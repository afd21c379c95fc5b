"""A conversation is shortened by rules, and never loses the rules, the runbook, a step, a refusal or a question."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from opsagent.compaction import compact, size
from opsagent.fence import FENCED, fence

Message = dict[str, Any]


def turn(number: int, result: str, arguments: str = "{}") -> list[Message]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "tail_log", "arguments": arguments}}
    content = fence(result, source=f"tail_log e{number}")
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": content},
    ]


HEAD: list[Message] = [{"role": "system", "content": "rules " * 50}, {"role": "user", "content": "runbook " * 200}]


def conversation(turns: int, length: int) -> list[Message]:
    messages = [*HEAD]
    for number in range(turns):
        messages += turn(number, "x" * length)
        messages.append({"role": "user", "content": f"Step s{number} is not left. Red checks: y{number}"})
    return messages


def test_what_fits_is_left_alone() -> None:
    messages = conversation(3, 100)
    assert compact(messages, 10_000) is messages


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(10, 30_000), st.integers(5_000, 60_000))
def test_pairs_rules_and_steps_survive(turns: int, length: int, limit: int) -> None:
    messages = conversation(turns, length)
    made = list(compact(messages, limit))
    assert size(made) <= max(limit, size(messages))
    assert [m["role"] for m in made] == [m["role"] for m in messages]
    assert [m.get("tool_call_id") for m in made] == [m.get("tool_call_id") for m in messages]
    assert [m for m in made if m["role"] in ("system", "user")] == [
        m for m in messages if m["role"] in ("system", "user")
    ]
    assert all(FENCED.fullmatch(m["content"]) for m in made if m["role"] == "tool")
    assert compact(made, max(limit, size(made))) is made


def test_old_results_go_first_and_recent_ones_stay_whole() -> None:
    messages = conversation(10, 5_000)
    made = list(compact(messages, 40_000))
    assert made[-2] == messages[-2]
    assert len(made[3]["content"]) < 1_500
    assert "e0" in made[3]["content"]
    assert "shortened" in made[3]["content"]
    assert size(made) <= 40_000


def test_refusals_and_short_answers_are_never_touched() -> None:
    refusal = json.dumps({"ok": False, "error": "refused by operator: not on Fridays"})
    messages = [*HEAD, *turn(0, refusal), *conversation(12, 8_000)[2:]]
    assert list(compact(messages, 20_000))[:4] == messages[:4]


def test_long_arguments_are_cut_and_stay_json() -> None:
    arguments = json.dumps({"path": "/etc/x", "content": "line\n" * 4_000})
    messages = [*HEAD, *turn(0, "ok", arguments), *conversation(9, 10)[2:]]
    made = list(compact(messages, 10_000))
    cut = json.loads(made[2]["tool_calls"][0]["function"]["arguments"])
    assert cut["path"] == "/etc/x"
    assert len(cut["content"]) < 1_000
