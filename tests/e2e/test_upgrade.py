"""runbooks/upgrade.md on the lab: the new version is verified before clients see it, and the way back is really gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsagent.again import reopened, roll_back
from opsagent.checked import checked_runbook
from opsagent.cli import cli
from opsagent.data import find_runbook
from opsagent.places import SCENARIOS, lab_places
from opsagent.run import Silent
from opsagent.session import LAB_STATE, Wish, begin, conduct

FASTER = 'extends = "{name}"\nspeed = 150.0\n'


def upgrade(name: str, folder: Path, **params: Any) -> tuple[dict[str, Any], list[str], list[dict[str, Any]]]:
    """Report, what the oracle misses, and the events."""
    (folder / f"{name}.toml").write_text(FASTER.format(name=name))
    book = checked_runbook(find_runbook("runbooks/upgrade.md"))
    places = lab_places(book, str(folder / f"{name}.toml"))
    lab = places.lab
    places.closers.clear()  # the oracle looks at the hosts after the run
    try:
        with begin(Wish(runbook=book, places=places, params=params, folder=folder / "run")) as session:
            conduct(session)
        report = json.loads((folder / "run" / "report.json").read_text())
        missed = lab.oracle(report)
    finally:
        lab.close()
    lines = (folder / "run" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return report, missed, [json.loads(line) for line in lines]


def calls(events: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Tool and port (or unit) of each call that was made, in order."""
    made = {e["data"]["call"] for e in events if e["type"] == "call.started"}
    intents = [e["data"]["call"] for e in events if e["type"] == "call.intent"]
    return [(c["tool"], (c["args"].get("server") or c["args"]).get("port")) for c in intents if c["id"] in made]


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str], list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("upgrade")
    return (folder, *upgrade("upgrade", folder))


def test_the_new_version_is_verified_on_the_spare_port_and_then_takes_the_old_one(upgraded: Any) -> None:
    assert SCENARIOS["upgrade"] == "upgrade"
    tmp_path, report, missed, events = upgraded
    assert missed == []
    assert (report["status"], report["weight_loads"]) == ("verified", 2)
    made = calls(events)
    order = [made.index(step) for step in [
        ("curl_test", 30000), ("stop_server", 30000), ("launch_sglang", 30001), ("curl_test", 30001),
        ("stop_server", 30001), ("launch_sglang", 30000),
    ]]  # fmt: skip
    assert order == sorted(order)
    assert made[-1] == ("curl_test", 30000)
    tiers = {e["data"]["call"]["args"].get("port"): e["data"]["verdict"]["tier"]
             for e in events if e["type"] == "call.intent" and e["data"]["call"]["tool"] == "stop_server"}  # fmt: skip
    assert tiers[30000] == "R2", "the old server is stopped with a yes"
    assert all(item["resolved"] for item in report["incidents"])
    assert cli.main(["replay", str(tmp_path / "run"), "--mode", "strict"], standalone_mode=False) in (0, None)


def test_a_version_that_fails_its_verification_gives_way_to_the_old_one(tmp_path: Path) -> None:
    report, missed, events = upgrade("upgrade-failed", tmp_path)
    assert missed == []
    assert (report["status"], report["exit_code"]) == ("failed", 1)
    back = [e for e in events if e["type"] == "call.intent" and e["data"]["call"]["tool"] == "ssh_exec"]
    assert [e["data"]["verdict"]["tier"] for e in back] == ["R1"], "it comes back although nobody is there"
    assert cli.main(["verify", str(tmp_path / "run")], standalone_mode=False) in (0, None)


def test_a_report_that_is_not_signed_is_rolled_back(upgraded: Any) -> None:
    tmp_path, report, _missed, _events = upgraded
    assert report["status"] == "verified"
    assert (tmp_path / "run" / LAB_STATE).exists()
    with reopened(str(tmp_path / "run"), mode="rollback", watcher=lambda _wish: Silent(), accept_drift=True) as session:
        code, after = roll_back(session)
        lab = session.places.lab
        assert lab is not None
        servers = lab.snapshot()["gpu1"]["ports"]
    assert int(code) in (0, 130)
    assert any("taken back" in text and "0.5.10" in text for text in after.open)
    assert not any("rollback" in text for text in after.open)
    assert ["0.0.0.0", 30000] in servers


@pytest.mark.soak
def test_with_free_cards_the_old_server_serves_until_the_switch(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text('extends = "upgrade"\n[hosts.gpu1]\ncards = [{ model = "4090", count = 2 }]\n')
    more = {"beside": True, "env": {"CUDA_VISIBLE_DEVICES": "1"}, "move": False}
    book = checked_runbook(find_runbook("runbooks/upgrade.md"))
    places = lab_places(book, str(tmp_path / "two.toml"), speed=150.0)
    with begin(Wish(runbook=book, places=places, params=more, folder=tmp_path / "run")) as session:
        report = conduct(session)
        assert places.lab is not None
        ports = places.lab.snapshot()["gpu1"]["ports"]
    assert (report.status, report.weight_loads) == ("verified", 1)
    assert {port for _address, port in ports} >= {30000, 30001}
    lines = (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    assert not any(tool == "stop_server" for tool, _port in calls([json.loads(line) for line in lines]))
    assert any("still serves on port 30000" in text for text in report.open)
