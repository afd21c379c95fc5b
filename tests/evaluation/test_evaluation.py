"""`opsagent eval`: suites, trials judged by the oracle, what is kept when it is interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from opsagent.cli.evaluate import command
from opsagent_lab import scenario
from opsagent_lab.evaluation import load, names, summarise
from opsagent_lab.evaluation.summary import wilson
from opsagent_tools.errors import InputError


def test_the_suites_name_scenarios_that_exist_and_all_leaves_none_out() -> None:
    for name in names():
        assert load(name).tasks
    assert {task.scenario for task in load("all").tasks} == set(scenario.names())


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("title = 'x'", "task"),
        ("title = 'x'\n[[task]]\nscenari = 'dense'", "scenari"),
        ("title = 'x'\nrepeat = 0\n[[task]]\nscenario = 'dense'", "repeat"),
        ("title = ", "suite.toml"),
        ("title = 'x'\n[[task]]\nscenario = 'densee'", "densee"),
    ],
)
def test_a_wrong_suite_is_named_before_anything_runs(text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(text)
    with pytest.raises(InputError) as error:
        load(str(tmp_path / "suite.toml"))
    assert where in f"{error.value.where} {error.value.what}"


def test_an_unknown_suite_gets_a_suggestion() -> None:
    with pytest.raises(InputError) as error:
        load("repair")
    assert "repairs" in error.value.hint


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_rate(passed_of: tuple[int, int]) -> None:
    passed, count = passed_of
    low, high = wilson(passed, count)
    assert 0 <= low <= passed / count + 1e-4
    assert passed / count - 1e-4 <= high <= 1


def test_the_interval_is_wilsons() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Newcombe 1998, method 3
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)


def test_trials_are_judged_by_the_hosts_kept_and_not_made_twice(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text('extends = "takeover"\nspeed = 150.0\n')
    (tmp_path / "never.toml").write_text(
        'extends = "takeover"\nspeed = 150.0\n[oracle]\nexpect = ["hosts.gpu4.counters.launches == 7"]\n'
    )
    suite = tmp_path / "two.toml"
    suite.write_text(
        f"title = 'two'\n[[task]]\nscenario = '{tmp_path}/good.toml'\n[[task]]\nscenario = '{tmp_path}/never.toml'\n"
    )
    asked = [str(suite), "--out", str(tmp_path / "out"), "--json"]
    first = CliRunner().invoke(command, asked, standalone_mode=False)
    assert first.return_value == 1, first.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [row["passed"] for row in summary["results"]] == [True, False]
    assert summary["results"][1]["status"] == "verified"  # the report is content: the oracle is not
    assert summary["results"][1]["problems"]
    assert (summary["passed"], summary["trials"], summary["tasks"], summary["every_time"]) == (1, 2, 2, 1)
    runs = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    again = CliRunner().invoke(command, asked, standalone_mode=False)
    assert again.return_value == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == runs
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    more = CliRunner().invoke(command, [*asked, "--repeat", "2"], standalone_mode=False)
    assert more.return_value == 1
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["trials"] == 4


def test_every_time_counts_tasks_not_attempts(tmp_path: Path) -> None:
    from opsagent_lab.evaluation import Trial

    def trial(name: str, number: int, passed: bool) -> Trial:
        return Trial(
            scenario=name, runbook="launch", attempt=number, passed=passed, problems=[], status="", exit_code=0, calls=1,
            denials=0, turns=0, tokens=None, weight_loads=1, seconds=1.0, folder="",
        )  # fmt: skip

    found = summarise("s", "m", [trial("a", 1, True), trial("a", 2, False), trial("b", 1, True), trial("b", 2, True)])
    assert (found.passed, found.every_time, found.tasks, found.rate) == (3, 1, 2, 0.75)
