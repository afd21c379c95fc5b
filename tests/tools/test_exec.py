from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes import FakeHost, Script, StepClock
from pydantic import ValidationError

from opsagent_tools import reboot_host, run_job, ssh_exec
from opsagent_tools.errors import HostKeyMismatch, HostUnreachable, InputError, OutcomeUnknown, ToolFailed
from opsagent_tools.host import Argv
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.reboot_host import RebootHostArgs
from opsagent_tools.run_job import RunJobArgs
from opsagent_tools.ssh_exec import SshExecArgs
from opsagent_tools.tool import Context


@dataclass
class Blobs:
    kept: dict[str, bytes] = field(default_factory=dict)

    def keep(self, name: str, data: bytes) -> str:
        self.kept[name] = data
        return f"sha-of-{name}"


def test_result_is_clipped_and_the_whole_is_a_blob() -> None:
    blobs = Blobs()
    args = SshExecArgs(argv=["seq", "1", "100000"])
    done = ssh_exec.run(LocalHost(), args, Context(keep=blobs.keep), keep=2000)
    assert len(done.stdout) < 2200
    assert done.blobs == {"stdout": "sha-of-stdout"}
    assert blobs.kept["stdout"].startswith(b"1\n2\n")
    assert len(blobs.kept["stdout"]) == done.stdout_bytes == 588895


def test_pipe_exit_code_and_what_counts_as_failure() -> None:
    done = ssh_exec.run(LocalHost(), SshExecArgs(stages=[["printf", "a\\nb\\n"], ["grep", "c"]]))
    assert (done.exit_code, done.failed) == (1, True)
    assert not ssh_exec.run(LocalHost(), SshExecArgs(argv=["grep", "c", "/dev/null"], ok_codes=[0, 1])).failed
    late = ssh_exec.run(LocalHost(), SshExecArgs(argv=["sleep", "9"], timeout_s=0.2, ok_codes=[0, 124]))
    assert (late.timed_out, late.failed) == (True, True)


@pytest.mark.parametrize(
    "args", [{}, {"argv": []}, {"argv": ["a"], "stages": [["b"]]}, {"argv": ["a\0"]}, {"argv": "ls"}]
)
def test_bad_commands(args: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SshExecArgs.model_validate(args)


def job(host: FakeHost, blobs: Blobs | None = None, **args: object) -> run_job.RunJobResult:
    ctx = Context("r1", "c9", clock=host.clock, keep=(blobs or Blobs()).keep)
    return run_job.run(host, RunJobArgs.model_validate(args), ctx)


def test_job_ends_with_its_exit_code_and_log() -> None:
    blobs = Blobs()
    done = job(FakeHost(script=Script([(0, "begin\n"), (50, "end\n")], ends=(60, 3))), blobs, argv=["make"])
    assert (done.state, done.exit_code, done.failed, done.unit) == ("exited", 3, True, "opsagent-r1-c9")
    assert (done.tail, blobs.kept) == ("begin\nend\n", {"opsagent-r1-c9.log": b"begin\nend\n"})


def test_job_that_goes_on_is_waited_for_again() -> None:
    host = FakeHost(script=Script([(0, "begin\n")], ends=(100, 0)))
    first = job(host, argv=["make"], wait_s=10)
    assert (first.state, first.ok, first.failed) == ("running", None, False)
    second = job(host, job=first.unit)
    assert (second.state, second.exit_code, second.failed) == ("exited", 0, False)
    assert len(host.units) == 1


def test_unknown_job() -> None:
    with pytest.raises(ToolFailed):
        job(FakeHost(), job="opsagent-r1-c1")


def test_unknown_outcome_of_a_start() -> None:
    host = FakeHost(script=Script(ends=(5, 0)))
    args, ctx = RunJobArgs(argv=["make"]), Context("r1", "c9", clock=host.clock)
    assert run_job.probe(host, args, ctx) is None
    job(host, argv=["make"], wait_s=0)
    found = run_job.probe(host, args, ctx)
    assert found is not None
    assert found.state == "exited"


class Rebooting(FakeHost):
    """Loses the link when it reboots, is away for a while, and comes back with another boot id."""

    away_s: float = 60.0
    down_at: float | None = None
    comes_back: bool = True
    error: Exception | None = None

    def _systemctl(self, _host: FakeHost, argv: Argv, _stdin: str) -> tuple[int, str, str]:
        self.down_at = self.clock.seconds
        raise OutcomeUnknown("cut", where=self.name)

    def _cat(self, _host: FakeHost, argv: Argv, _stdin: str) -> tuple[int, str, str]:
        if self.down_at is not None:
            if self.error:
                raise self.error
            if not self.comes_back or self.clock.seconds < self.down_at + self.away_s:
                raise HostUnreachable("refused", where=self.name)
            return 0, "2222\n", ""
        return 0, "1111\n", ""


def rebooting(**fields: object) -> Rebooting:
    host = Rebooting(clock=StepClock())
    for name, value in fields.items():
        setattr(host, name, value)
    host.programs = {"systemctl": host._systemctl, "cat": host._cat}
    return host


def test_reboot_is_proved_by_the_boot_id() -> None:
    host = rebooting()
    done = reboot_host.run(host, RebootHostArgs(reason="driver"), Context(clock=host.clock))
    assert (done.rebooted, done.boot_id_before, done.boot_id_after, done.failed) == (True, "1111", "2222", False)
    assert 55 < done.waited_s < 80


def test_host_that_does_not_come_back_is_a_result() -> None:
    host = rebooting(comes_back=False)
    done = reboot_host.run(host, RebootHostArgs(reason="driver", wait_s=120), Context(clock=host.clock))
    assert (done.rebooted, done.failed, done.cause) == (False, True, "host-did-not-come-back")


def test_changed_host_key_after_a_reboot_is_not_waited_away() -> None:
    host = rebooting(error=HostKeyMismatch("changed"))
    with pytest.raises(HostKeyMismatch):
        reboot_host.run(host, RebootHostArgs(reason="driver"), Context(clock=host.clock))


def test_this_machine_is_not_rebooted() -> None:
    with pytest.raises(InputError):
        reboot_host.run(LocalHost(), RebootHostArgs(reason="driver"))


def test_output_may_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\0b\xff\x1b[2J\xe2\x80\xae")
    done = ssh_exec.run(LocalHost(), SshExecArgs(argv=["cat", str(tmp_path / "x")]))
    assert (done.stdout, done.stdout_bytes) == ("a\0b\ufffd\x1b[2J\u202e", 11)
