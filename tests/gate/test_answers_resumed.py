"""Answers given between two processes: stop ends the run, change is made as changed, a look at the host settles a call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import FakeHost
from gate.world import Person, open_folder, wants

from opsagent.breaker import Breaker, RefusedAgain
from opsagent.call import Decision
from opsagent.cli.approve import command
from opsagent.execute import execute, prepare
from opsagent.journal import FileJournal
from opsagent.journal.runs import open_run
from opsagent.run import Run
from opsagent.settling import settle
from opsagent.signals import NeedApproval, StopRun
from opsagent_tools.errors import ExitCode, OutcomeUnknown

RESTART = ("systemctl", "restart", "sglang")


def close(run: Run) -> None:
    assert isinstance(run.journal, FileJournal)
    run.journal.close()


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    run = open_folder(tmp_path / "run", None)
    with pytest.raises(NeedApproval):
        execute(run, prepare(run, wants(*RESTART)))
    close(run)
    return tmp_path / "run"


def approve(folder: Path, *words: str) -> int:
    result = CliRunner().invoke(command, [str(folder), *words], standalone_mode=False)
    return int(result.return_value)


def test_stop_ends_the_run_when_it_is_resumed(waiting: Path) -> None:
    assert approve(waiting, "--stop", "not tonight") == 0
    host = FakeHost()
    run = open_folder(waiting, Person(), host=host)
    with pytest.raises(StopRun) as stop:
        settle(run)
    assert stop.value.exit_code is ExitCode.DENIED
    assert host.commands == []


def test_change_is_judged_and_asked_about_afresh(waiting: Path) -> None:
    assert approve(waiting, "--change", '{"argv": ["systemctl", "restart", "nginx"]}') == 0
    assert open_run(waiting).state.calls["c1"].status == "changed"
    person = Person([Decision("reject", "operator")])
    run = open_folder(waiting, person)
    settle(run)
    assert [call.args["argv"] for call in person.asked] == [["systemctl", "restart", "nginx"]]
    assert run.journal.state.calls["c1"].status == "refused"
    close(run)
    again = Person()
    settle(open_folder(waiting, again))  # a death after the changed call was announced does not make it twice
    assert again.asked == []


@pytest.mark.parametrize("text", ["{", "[]", '{"argv": []}', '{"nothing": 1}'])
def test_a_change_that_the_tool_does_not_take(waiting: Path, text: str) -> None:
    assert approve(waiting, "--change", text) == 2
    assert open_run(waiting).state.calls["c1"].status == "waiting"


@pytest.mark.parametrize(("happened", "made"), [("yes", 0), ("no", 1)])
def test_a_person_settles_what_nobody_knows(tmp_path: Path, happened: str, made: int) -> None:
    folder = tmp_path / "run"
    host = FakeHost()

    def gone(_host: FakeHost, _argv: tuple[str, ...], _stdin: str) -> tuple[int, str, str]:
        raise OutcomeUnknown("the link was lost")

    host.programs["systemctl"] = gone
    run = open_folder(folder, Person(), host=host)
    with pytest.raises(StopRun) as stop:
        execute(run, prepare(run, wants(*RESTART)))
    assert stop.value.exit_code is ExitCode.UNKNOWN_OUTCOME
    close(run)
    assert approve(folder, "c7", "--happened", happened) == 2
    assert approve(folder, "--happened", happened) == 0
    state = open_run(folder).state
    assert state.unsettled == []
    calm = FakeHost()
    run = open_folder(folder, Person(), host=calm)
    settle(run)
    if made:  # it is not made by itself: the model asks for it again
        execute(run, prepare(run, wants(*RESTART)))
    assert len([argv for argv in calm.commands if argv == RESTART]) == made


def test_what_is_asked_carries_the_rollback(waiting: Path) -> None:
    result = CliRunner().invoke(command, [str(waiting), "--show"], standalone_mode=False)
    assert "nothing is declared" not in result.output
    assert "/srv/models/x" in result.output
    shown = json.loads(CliRunner().invoke(command, [str(waiting), "--show", "--json"], standalone_mode=False).stdout)
    assert shown["call"]["id"] == "c1"


def test_refusals_in_a_row_end_as_denied() -> None:
    breaker = Breaker()
    breaker.refused()
    breaker.refused()
    with pytest.raises(RefusedAgain) as stop:
        breaker.refused()
    assert stop.value.exit_code is ExitCode.DENIED
