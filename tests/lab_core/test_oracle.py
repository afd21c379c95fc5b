"""The oracle of a scenario and the scenario files themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opsagent_lab
from opsagent_lab import oracle, scenario
from opsagent_lab.lab import Lab
from opsagent_tools.host import Host, argv


@pytest.mark.parametrize(
    ("wish", "failures"),
    [
        ({"expect": ["hosts.pve.gpus == 2", "hosts.pve.driver.loaded == '580.126.09'"]}, 0),
        ({"expect": ["hosts.pve.gpus == 3"]}, 1),
        ({"expect": ["hosts.nowhere.gpus == 2"]}, 1),
        ({"expect": ["hosts.pve.gpus ="]}, 1),
        ({"expect": ["report.weight_loads == 1"]}, 0),
        ({"served": [{"host": "pve", "port": 30000}]}, 1),
        ({"once": ["reboots"]}, 1),
        ({"never": ["reboots"]}, 0),
        ({"sevred": []}, 1),
    ],
)
def test_expectations(lab: Lab, wish: dict[str, Any], failures: int) -> None:
    assert len(oracle.check(lab.world, wish)) == failures


def test_a_report_is_looked_at(lab: Lab) -> None:
    wish = {"status": "verified", "expect": ["report.weight_loads == 1"]}
    assert oracle.check(lab.world, wish, {"status": "verified", "weight_loads": 1}) == []
    assert len(oracle.check(lab.world, wish, {"status": "failed", "weight_loads": 2})) == 2


def test_what_a_served_model_must_have(tmp_path: Path) -> None:
    with opsagent_lab.open("story") as lab:
        place = {"host": "kpro6", "port": 30000}
        assert oracle.check(lab.world, {"served": [{**place, "max_running_requests": 8, "context_len": 32768}]}) == []
        assert len(oracle.check(lab.world, {"served": [{**place, "max_running_requests": 9}]})) == 1
        assert len(oracle.check(lab.world, {"served": [{**place, "version": "0.5.9"}]})) == 1


def test_the_same_deeds_give_the_same_snapshot_and_others_do_not(small: Path) -> None:
    def after(*words: str) -> dict[str, Any]:
        with opsagent_lab.open(str(small)) as lab:
            from lab_core.conftest import host_of

            argv(host_of(lab, "pve"), *words)
            return lab.snapshot()

    touched = after("touch", "/root/a")
    assert touched == after("touch", "/root/a")
    assert touched != after("touch", "/root/b")


@pytest.mark.parametrize("name", [n for n in scenario.names() if not n.startswith("broken-")])
def test_every_scenario_opens_and_its_oracle_is_readable(name: str) -> None:
    with opsagent_lab.open(name) as lab:
        failed = lab.oracle({"status": "failed"})
        assert not [text for text in failed if "unknown oracle key" in text or "not a CEL" in text]
        assert lab.world.bugs == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("pve =", "pvee ="), "unknown key 'pvee'"),
        (('target = "pve"', 'target = "pev"'), "'pev', which is not there"),
        (('model = "A6000"', 'model = "A7000"'), "unknown card"),
        (('parent = "pve"', 'parent = "pev"'), "parent"),
        (("speed = 200.0", "speed = = 200.0"), "not TOML"),
    ],
)
def test_faults_of_a_scenario_file(small: Path, change: tuple[str, str], words: str) -> None:
    small.write_text(small.read_text().replace(*change))
    with pytest.raises(scenario.ScenarioError, match=words):
        opsagent_lab.open(str(small))


def test_a_scenario_that_is_not_there() -> None:
    with pytest.raises(scenario.ScenarioError, match="there are"):
        opsagent_lab.open("sotry")


def test_the_clients_of_one_host_see_one_world(lab: Lab, host: Callable[..., Host]) -> None:
    argv(host("pve"), "touch", "/root/seen")
    assert argv(host("pve"), "ls", "/root").stdout == "notes.txt\nseen\n"
    assert argv(host("other"), "ls", "/root").stdout == ""
