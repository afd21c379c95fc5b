"""A stop while a call is under way: what a tool says that gave up waiting is no outcome, and resume finds the real one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from loop.world import TOOLS, TWO_STEPS, AddArgs, Count, CounterHost, make_run

from opsagent.autopilot import Autopilot
from opsagent.loop import drive
from opsagent.progress import Progress
from opsagent.run import Run
from opsagent.signals import StopRun
from opsagent_tools.errors import ExitCode
from opsagent_tools.tool import Context


class Stop:
    """Ctrl-C comes while `add` waits for its job; `gives_up` says whether the tool returns early then."""

    def __init__(self, recovery: str, *, gives_up: bool = True) -> None:
        self.pressed, self.gives_up = False, gives_up
        self.host = CounterHost()
        self.run: Run = make_run(TWO_STEPS, host=self.host, stopped=lambda: self.pressed)
        tool = replace(TOOLS["add"], run=self.add, probe=self.probe, recovery=recovery)  # type: ignore[arg-type]
        self.run.tools = {**TOOLS, "add": tool}

    def add(self, host: CounterHost, args: AddArgs, ctx: Context) -> Count:
        if not host.effects:
            host.value += args.by  # the job goes on, whoever waits for it
            host.effects.append(ctx.call_id)
            self.pressed = True
            return Count(value=0, low=True) if self.gives_up else Count(value=host.value)
        return Count(value=host.value)

    def probe(self, host: CounterHost, args: AddArgs, ctx: Context) -> Count | None:
        return Count(value=host.value) if host.effects else None

    def go(self) -> ExitCode:
        return drive(self.run, Autopilot(self.run))

    def resume(self) -> ExitCode:
        self.pressed = False
        self.run.progress = Progress.of(self.run.journal.events())
        return self.go()

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.run.journal.events() if event.type == kind]


@pytest.mark.parametrize("recovery", ["reconcilable", "idempotent", "read_only"])
def test_a_call_that_was_cut_short_is_settled_by_resume_and_does_not_fail_the_step(recovery: str) -> None:
    stop = Stop(recovery)
    with pytest.raises(StopRun) as ended:
        stop.go()
    assert ended.value.exit_code is ExitCode.INTERRUPTED
    assert [data.get("stopped") for data in stop.told("call.unknown")] == [True]
    assert stop.told("call.finished") == []
    assert stop.resume() is ExitCode.VERIFIED
    assert (stop.host.value, stop.host.effects) == (2, ["c1"])


def test_a_job_that_is_there_is_gone_on_with_although_it_had_not_failed() -> None:
    stop = Stop("reconcilable", gives_up=False)
    with pytest.raises(StopRun):
        stop.go()
    assert stop.resume() is ExitCode.VERIFIED
    assert [data["happened"] for data in stop.told("call.reconciled")] == ["yes"]


def test_a_finished_download_is_not_made_again_because_of_a_stop() -> None:
    stop = Stop("idempotent", gives_up=False)
    with pytest.raises(StopRun):
        stop.go()
    assert [data["ok"] for data in stop.told("call.finished")] == [True]
    assert stop.resume() is ExitCode.VERIFIED


def test_what_cannot_be_made_again_counts_as_it_ended() -> None:
    stop = Stop("non_retriable", gives_up=False)
    with pytest.raises(StopRun):
        stop.go()
    assert stop.told("call.unknown") == []
    assert stop.resume() is ExitCode.VERIFIED


def test_a_stop_while_resume_looks_for_the_call_leaves_it_open_again() -> None:
    stop = Stop("reconcilable")
    with pytest.raises(StopRun):
        stop.go()
    stop.pressed = False
    stop.run.progress = Progress.of(stop.run.journal.events())

    def impatient(host: CounterHost, args: AddArgs, ctx: Context) -> Count:
        stop.pressed = True
        return Count(value=0, low=True)

    patient = stop.run.tools["add"]
    stop.run.tools = {**stop.run.tools, "add": replace(patient, probe=impatient)}
    with pytest.raises(StopRun) as ended:
        stop.go()
    assert ended.value.exit_code is ExitCode.INTERRUPTED
    stop.run.tools = {**stop.run.tools, "add": patient}
    assert stop.resume() is ExitCode.VERIFIED
