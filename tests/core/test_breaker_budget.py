"""What ends a run that goes round in circles or uses too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from opsagent.breaker import Breaker, GoingInCircles
from opsagent.budget import Budget, Limits
from opsagent.call import Call
from opsagent.journal import MemoryJournal
from opsagent.runbook.model import BudgetSpec
from opsagent_tools.errors import BudgetExceeded, ModelUnusable


def call(tool: str = "tail_log", **args: Any) -> Call:
    return Call(id="c1", tool=tool, args=args)


def feed(breaker: Breaker, *calls: Call) -> list[str]:
    return [breaker.see(c) for c in calls]


def test_the_same_call_is_nudged_at_three_and_stopped_at_five() -> None:
    breaker = Breaker()
    assert [bool(text) for text in feed(breaker, *[call()] * 4)] == [False, False, True, True]
    with pytest.raises(GoingInCircles) as caught:
        breaker.see(call())
    assert caught.value.exit_code == 1


def test_two_calls_in_turn_are_a_circle_too() -> None:
    breaker = Breaker()
    a, b = call(path="a"), call(path="b")
    assert any(feed(breaker, *[a, b] * 3))
    feed(breaker, a, b, a)
    with pytest.raises(GoingInCircles):
        breaker.see(b)


def test_other_arguments_another_host_or_a_poll_are_no_circle() -> None:
    breaker = Breaker()
    assert not any(feed(breaker, *[call(line=n) for n in range(20)]))
    assert not any(breaker.see(call(), polls=True) for _ in range(20))
    assert not breaker.see(call())


def test_three_refusals_in_a_row_end_the_run() -> None:
    breaker = Breaker()
    breaker.refused()
    breaker.refused()
    breaker.made()
    breaker.refused()
    breaker.refused()
    with pytest.raises(GoingInCircles):
        breaker.refused()


def test_five_unusable_calls_in_a_row_mean_an_unusable_model() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker.rejected()
    breaker.see(call())
    for _ in range(4):
        breaker.rejected()
    with pytest.raises(ModelUnusable):
        breaker.rejected()


@dataclass
class Hand:
    """A clock that is moved by hand."""

    at: float = 100.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def budget(clock: Hand | None = None, **limits: float) -> tuple[Budget, MemoryJournal]:
    journal = MemoryJournal()
    return Budget(Limits(**limits), clock or Hand(), lambda: journal.state.usage), journal  # type: ignore[arg-type]


def test_calls_and_turns_up_to_the_limit_and_no_further() -> None:
    spent, journal = budget(calls=2, turns=2)
    journal.append("call.intent", call=call().model_dump())
    for _ in range(2):
        spent.call()
        journal.append("call.started", call="c1")
        journal.append("model.response", usage={"prompt_tokens": 1, "completion_tokens": 1})
        spent.turn({})
    with pytest.raises(BudgetExceeded, match="calls"):
        spent.call()
    journal.append("model.response", usage={})
    with pytest.raises(BudgetExceeded, match="turns"):
        spent.turn({})
    assert spent.tokens_unknown


def test_tokens() -> None:
    spent, journal = budget(tokens=10)
    journal.append("model.response", usage={"prompt_tokens": 8, "completion_tokens": 3})
    with pytest.raises(BudgetExceeded, match="tokens, 11 of 10"):
        spent.turn({})


def test_time_is_the_clock_s_and_waiting_is_not_work() -> None:
    clock = Hand()
    spent, journal = budget(clock, wall_s=100.0, working_s=50.0)
    clock.sleep(40)
    spent.call()
    assert spent.left_s() == pytest.approx(10.0)
    journal.state.usage.waiting_s = 35.0
    clock.sleep(40)
    spent.call()
    clock.sleep(10)
    with pytest.raises(BudgetExceeded, match="working"):
        spent.call()
    clock.sleep(20)
    with pytest.raises(BudgetExceeded, match="wall"):
        spent.call()


def test_a_resumed_run_goes_on_counting() -> None:
    journal = MemoryJournal()
    journal.state.usage.wall_s = 90.0
    clock = Hand()
    spent = Budget(Limits(wall_s=100.0), clock, lambda: journal.state.usage)
    clock.sleep(11)
    with pytest.raises(BudgetExceeded):
        spent.time()


def test_no_limit_is_no_limit_and_a_runbook_says_its_own() -> None:
    spent, _ = budget()
    spent.call()
    assert spent.left_s() == float("inf")
    assert Limits.of(BudgetSpec(wall="40m", calls=80)) == Limits(turns=200, calls=80, tokens=0, wall_s=2400.0)
