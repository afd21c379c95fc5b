"""What a run says at its end: how it goes on, for every way in which it may."""

from __future__ import annotations

import pytest

from opsagent.call import Call
from opsagent.journal.state import CallState, RunState
from opsagent.live import ended


def state() -> RunState:
    found = RunState(run="7f3a")
    call = Call(id="c5", tool="reboot_host", role="target", host="gpu1", args={})
    found.calls["c5"] = CallState(call, status="waiting")
    return found


@pytest.mark.parametrize(
    ("status", "mode", "said"),
    [
        ("verified", "", []),
        ("interrupted", "", ["opsagent resume 7f3a"]),
        ("waiting-approval", "", ["opsagent approve 7f3a c5", "opsagent resume 7f3a"]),
        ("transient", "resume", ["no route", "opsagent resume 7f3a"]),
        ("unknown-outcome", "", ["no route", "look at the host", "opsagent resume 7f3a"]),
        ("failed", "", ["no route"]),
        ("interrupted", "stop", []),  # the server was stopped as wished: nothing goes on
        ("interrupted", "rollback", []),
    ],
)
def test_it_says_why_and_what_to_type_next(status: str, mode: str, said: list[str]) -> None:
    lines = ended({"status": status, "failed": {"text": "no route"}}, state(), mode)
    assert bool(lines) == bool(said)
    assert all(any(words in line for line in lines) for words in said)
    assert "resume" in " ".join(said) or not any("resume" in line for line in lines)


def test_what_was_said_just_before_is_not_said_again() -> None:
    data = {"status": "transient", "failed": {"text": "no route (try again later)"}}
    assert any("no route" in line for line in ended(data, state()))
    assert not any("no route" in line for line in ended(data, state(), "", ["error: no route (gpu1)"]))
