"""What systemctl says of a transient unit, and the commands that make one."""

from __future__ import annotations

import pytest
from fakes import FakeHost, Script

from opsagent_tools import jobs
from opsagent_tools.tool import Context


def shown(**rows: object) -> str:
    return "".join(f"{key}={value}\n" for key, value in {"LoadState": "loaded", **rows}.items())


@pytest.mark.parametrize(
    ("text", "state", "code"),
    [
        (
            shown(ActiveState="active", SubState="running", MainPID=77, ExecMainCode=0, ExecMainStatus=0),
            "running",
            None,
        ),
        (
            shown(ActiveState="active", SubState="exited", MainPID=0, ExecMainPID=77, ExecMainCode=1, ExecMainStatus=0),
            "exited",
            0,
        ),
        (shown(ActiveState="failed", SubState="failed", ExecMainPID=77, ExecMainCode=1, ExecMainStatus=2), "exited", 2),
        (
            shown(ActiveState="failed", SubState="failed", ExecMainPID=77, ExecMainCode=2, ExecMainStatus=9),
            "exited",
            137,
        ),
        (
            shown(ActiveState="failed", SubState="failed", ExecMainPID=77, ExecMainCode=3, ExecMainStatus=11),
            "exited",
            139,
        ),
        (shown(ActiveState="deactivating", SubState="stop-sigterm", MainPID=77), "stopping", None),
        ("LoadState=not-found\nActiveState=inactive\nSubState=dead\n", "gone", None),
        ("", "gone", None),
    ],
)
def test_states(text: str, state: str, code: int | None) -> None:
    seen = jobs.parse_unit(text)
    assert (seen.state, seen.exit_code) == (state, code)


def test_unit_is_made_with_what_keeps_its_end_readable() -> None:
    host = FakeHost(script=Script([(0, "hello\n")], ends=(5, 3)))
    job = jobs.start(host, jobs.JobSpec("opsagent-r1-c1", ("/bin/x", "--a"), "/var/log/x.log", {"TOKEN": "s3cret"}))
    assert (job.backend, job.pid, job.started) == ("systemd", 4000, "400077")
    made = next(argv for argv in host.commands if argv[0] == "systemd-run")
    assert "--property=RemainAfterExit=yes" in made
    assert "--property=KillMode=control-group" in made
    assert made[made.index("--") + 1 :] == ("/bin/x", "--a")
    assert not any("s3cret" in word for word in made)
    seen = jobs.wait(host, job, Context(clock=host.clock), timeout_s=60)
    assert (seen.state, seen.exit_code) == ("exited", 3)
    assert jobs.read_log(host, job.log) == (b"hello\n", 6)


def test_name_that_is_taken_is_the_same_job() -> None:
    host = FakeHost(script=Script(ends=(5, 0)))
    spec = jobs.JobSpec("opsagent-r1-c1", ("/bin/x",), "/var/log/x.log")
    first, second = jobs.start(host, spec), jobs.start(host, spec)
    assert (second.existing, second.pid) == (True, first.pid)
    assert len(host.units) == 1


def test_stop_asks_then_kills() -> None:
    host = FakeHost(script=Script(ignores_term=True))
    job = jobs.start(host, jobs.JobSpec("opsagent-r1-c1", ("/bin/x",), "/var/log/x.log"))
    seen = jobs.stop(host, job, Context(clock=host.clock), grace_s=20)
    assert seen.ended
    assert 20 <= host.clock.seconds < 60
    assert host.units["opsagent-r1-c1"].ended is not None
