"""A host that was away: the run ends as transient, nothing is rolled back, and resume makes the failed call again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gate.world import Person, open_folder, wants
from kill.small import effects, hosts_file, small_lab, start, to_the_end
from kill.test_small import ONCE

from opsagent.execute import execute, prepare
from opsagent.gate import Gate
from opsagent.journal import read_log
from opsagent.replay.recording import Recording
from opsagent.replay.run import replay
from opsagent_lab.faults import Fault
from opsagent_tools.errors import HostUnreachable, OutcomeUnknown
from opsagent_tools.host import argv


@pytest.mark.parametrize("kind", ["refuse", "refuse-auth"])
def test_resume_makes_the_failed_call_again(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    with small_lab(tmp_path) as lab:
        lab.faults.add(Fault(kind, "box"))  # type: ignore[arg-type]
        report = start(folder, hosts_file(lab, tmp_path))
        assert (report.exit_code, lab.faults.struck) == ({"refuse": 3, "refuse-auth": 2}[kind], 1)
        to_the_end(folder, lab, report)
        assert effects(lab) == ONCE


def test_a_link_that_is_lost_while_logging_in_is_no_refusal(tmp_path: Path) -> None:
    """Wherever in the handshake it is cut."""
    from loop.test_locking import lent

    with small_lab(tmp_path) as lab:
        for byte in range(1500, 3800, 230):
            lab.faults.clear()
            lab.faults.add(Fault("drop", "box", byte=byte, direction="down"))
            host = lent(lab, tmp_path)
            with pytest.raises((HostUnreachable, OutcomeUnknown)):
                argv(host, "true")
            assert lab.faults.struck == 1
            host.close()


@dataclass
class Cut:
    """The gate's questions, of which one loses the link."""

    at: int
    configured: bool = True
    asked: int = 0

    def ask(self, keys: Iterable[str]) -> Mapping[str, Any]:
        self.asked += 1
        if self.asked == self.at:
            raise OutcomeUnknown("the link was lost")
        return {key: "/usr/bin/systemctl" if key.startswith("exe:") else None for key in keys}


def test_a_link_that_is_lost_while_the_gate_looks_leaves_nothing_unknown(tmp_path: Path) -> None:
    run = open_folder(tmp_path / "run", Person())
    assert isinstance(run.gate, Gate)
    source = Cut(1)
    run.gate.facts = lambda _call: source
    assert not execute(run, prepare(run, wants("systemctl", "restart", "sglang"))).ok
    (call,) = run.journal.state.calls.values()
    assert (call.status, call.error["exit_code"], source.asked) == ("failed", 3, 1)
    source.asked, source.at = 0, 2  # judged, approved, and the second look loses it: the approval stays
    with pytest.raises(HostUnreachable):
        execute(run, prepare(run, wants("systemctl", "restart", "sglang")))
    assert [each.status for each in run.journal.state.calls.values()] == ["failed", "approved"]


def test_an_approval_outlives_a_host_that_is_locked(tmp_path: Path) -> None:
    """A person's yes is used after the wait, once, and the run replays."""
    from loop.test_locking import PATH, put

    folder = tmp_path / "run"
    with small_lab(tmp_path) as lab:
        put(lab, "f00d", 10**6)
        report = start(folder, hosts_file(lab, tmp_path))
        assert report.exit_code == 3
        lab.world.files(lab.world.host("box")).unlink(PATH)
        to_the_end(folder, lab, report)
        assert effects(lab) == ONCE
    asked = [event for event in read_log(folder).events if event.type == "approval.requested"]
    assert len(asked) == 2  # the stop and the append, each asked once
    assert replay(Recording.open(folder)).ok
