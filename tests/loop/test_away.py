"""A host that was away: the run ends as transient, nothing is rolled back, and resume makes the failed call again."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill.small import effects, hosts_file, small_lab, start, to_the_end
from kill.test_small import ONCE

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
