"""Servers of others: looked at after each write and at the end; one that is gone stops the run before it writes again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeHost
from kill.small import effects, hosts_file, opened, small_lab, start
from kill.test_small import ONCE

from opsagent.call import Call
from opsagent.checked import checked_runbook
from opsagent.data import find_runbook
from opsagent.journal import read_log
from opsagent.journal.runs import open_run
from opsagent.places import lab_places
from opsagent.replay.recording import Recording
from opsagent.replay.run import replay
from opsagent.run import Run
from opsagent.session import Wish, begin, conduct
from opsagent.verify import verify
from opsagent.watching import HostWatch
from opsagent_lab.faults import Fault
from opsagent_tools.bystanders import look, lost

TENANT = """
[[hosts.box.processes]]
argv = ["/usr/bin/tenant", "--port", "8000"]
ports = [8000]
"""


def sound(folder: Path) -> bool:
    return verify(folder).ok and replay(Recording.open(folder)).ok


def events(folder: Path) -> list[dict[str, Any]]:
    return [event.data for event in read_log(folder).events if event.type == "bystanders"]


def test_one_that_dies_stops_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path, TENANT) as lab:
        lab.faults.add(Fault("end", "box", match="systemd-run", port=8000))
        report = start(folder, hosts_file(lab, tmp_path))
        assert lab.faults.struck == 1
        assert (report.status, report.exit_code) == ("failed", 1)
        assert effects(lab) == {**ONCE, "ledger": "first\n"}  # what came after was not written
    (incident,) = report.incidents
    assert (incident.cause, incident.resolved) == ("bystander-lost", False)
    assert report.failed is not None
    assert report.failed.evidence == incident.evidence
    state = open_run(folder).state
    assert [each["call"] for each in state.lost] == ["c4"]
    assert sound(folder)


def test_one_that_dies_late_is_found_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path, TENANT) as lab:
        lab.faults.add(Fault("end", "box", match="cat /srv/models/ledger", port=8000))
        report = start(folder, hosts_file(lab, tmp_path))
        assert lab.faults.struck == 1
        assert (report.status, effects(lab)) == ("failed", ONCE)
    assert [each.cause for each in report.incidents] == ["bystander-lost"]
    assert sound(folder)


def test_who_was_to_be_stopped_is_no_bystander_and_the_living_alarm_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path, TENANT) as lab:
        report = start(folder, hosts_file(lab, tmp_path))
        assert (report.status, report.incidents) == ("verified", [])
    first, ended = events(folder)
    assert {each["port"] for each in first["seen"]} >= {8000, 8999}
    assert [each["port"] for each in ended["ended"]] == [8999]


def test_the_scenario_of_a_tenant(tmp_path: Path) -> None:
    book = checked_runbook(find_runbook("runbooks/launch.md"))
    places = lab_places(book, "tenant")
    lab = places.lab
    places.closers.clear()
    try:
        with begin(Wish(runbook=book, places=places, folder=tmp_path / "run")) as session:
            conduct(session)
        assert lab.oracle(json.loads((tmp_path / "run" / "report.json").read_text())) == []
        assert sound(tmp_path / "run")
    finally:
        lab.close()


class Away(HostWatch):
    """Sees nothing after the stop."""

    def after(self, run: Run, call: Call) -> None:
        if call.tool != "stop_server":
            super().after(run, call)


# --- health --------------------------------------------------------------------------------------------------------


@pytest.fixture
def host() -> FakeHost:
    fake = FakeHost(listeners={8000: (77, "python3"), 9000: (78, "other")}, http={"8000/health": "ok"})
    rows = ["77 1 77 77 ann 900 S python3 -m sglang.launch_server --model-path /m --port 8000"]
    rows += ["78 1 78 78 bob 900 S other"]
    fake.programs["ps"] = lambda _host, _argv, _stdin: (0, "\n".join(rows) + "\n", "")
    return fake


def test_a_model_server_must_answer(host: FakeHost) -> None:
    before = look(host, "t1")
    assert {each["name"]: each["health"] for each in before} == {"port 8000": 200, "port 9000": None}
    assert lost(host, before, host.clock) == []
    began = host.clock.now()
    host.http["8000/health"] = None  # type: ignore[assignment]
    (gone,) = lost(host, before, host.clock)
    assert gone["name"] == "port 8000"
    assert host.clock.now() > began  # it was asked again before anybody was alarmed


def test_ports_that_come_and_go_are_nobodys_server(host: FakeHost) -> None:
    host.listeners |= {45001: (80, "python3"), 9100: (81, "python3")}
    host.programs["ps"] = lambda _host, _argv, _stdin: (
        0, "78 1 78 78 bob 900 S other\n80 1 80 80 bob 9000 S python3 x.py\n81 1 81 81 bob 20 S python3 y.py\n", "",
    )  # fmt: skip
    assert [each["name"] for each in look(host, "t1")] == ["port 9000"]
    host.files["/proc/80/cgroup"] = b"0::/system.slice/metrics.service\n"
    assert [each["name"] for each in look(host, "t1")] == ["port 9000", "port 45001"]


def test_a_slow_moment_is_no_death(host: FakeHost) -> None:
    before = look(host, "t1")
    listening = dict(host.listeners)
    del host.listeners[9000]

    class Back:
        def now(self) -> float:
            return 0.0

        def sleep(self, _seconds: float) -> None:
            host.listeners.update(listening)

    assert lost(host, before, Back()) == []


def test_who_was_named_by_an_earlier_call_is_no_bystander_either(tmp_path: Path) -> None:
    """The look after the stop was lost with the link; the next one finds the server gone."""
    folder = tmp_path / "run"
    with small_lab(tmp_path) as lab, opened(folder, hosts_file(lab, tmp_path)) as session:
        session.run.watch = Away()
        assert conduct(session).status == "verified"
    assert [each["port"] for data in events(folder) for each in data.get("ended", [])] == [8999]
