"""Jobs on this machine, with real processes: the fallback where there is no systemd, or where we are not root."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsagent_tools import jobs, probes
from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.host import Command, Completed, Sink
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.tool import Context


class NoSystemd(LocalHost):
    """This machine, where systemd-run says what it says without systemd: the tests mean the fallback."""

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        if command.stages[0][0] == "systemd-run":
            return Completed(1, "", "System has not been booted with systemd as init system (PID 1).\n", 0, 64, 0.0)
        if command.stages[0][0] == "systemctl":
            return Completed(1, "", "Failed to connect to bus: Host is down\n", 0, 40, 0.0)
        return super().run(command, sink=sink, keep=keep)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NoSystemd]:
    monkeypatch.setenv("OPSAGENT_JOBS_DIR", str(tmp_path / "jobs"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # no version manager in between
    before = children_of_init()
    yield NoSystemd()
    for pid in children_of_init() - before:
        if "opsagent probe" in cmdline(pid) and str(tmp_path) in environment(
            pid
        ):  # not those of a test beside this one
            os.kill(pid, signal.SIGKILL)


def children_of_init() -> set[int]:
    found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return {int(line.split()[0]) for line in found.splitlines() if line.split()[1] == "1"}


def environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def spec(tmp_path: Path, script: str, **more: object) -> jobs.JobSpec:
    return jobs.JobSpec("opsagent-r1-c1", ("sh", "-c", script), str(tmp_path / "logs" / "job.log"), **more)  # type: ignore[arg-type]


def until(look: Callable[[], bool]) -> None:
    for _ in range(400):
        if look():
            return
        time.sleep(0.025)
    raise AssertionError("it did not happen")


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_exit_code_and_log_stay(host: NoSystemd, tmp_path: Path) -> None:
    job = jobs.start(host, spec(tmp_path, "echo out; echo err >&2; exit 7"))
    assert job.backend == "group"
    until(lambda: jobs.status(host, job).ended)
    seen = jobs.status(host, job)
    assert (seen.state, seen.exit_code, seen.members) == ("exited", 7, ())
    assert jobs.read_log(host, job.log) == (b"out\nerr\n", 8)
    assert jobs.read_log(host, job.log, 4) == (b"err\n", 8)


def test_signal_is_128_plus_its_number(host: NoSystemd, tmp_path: Path) -> None:
    job = jobs.start(host, spec(tmp_path, "kill -9 $$"))
    until(lambda: jobs.status(host, job).ended)
    assert jobs.status(host, job).exit_code == 137


def test_it_outlives_who_started_it(host: NoSystemd, tmp_path: Path) -> None:
    """The whole process group and session of the starter die, as with a lost SSH session."""
    code = (
        "import sys\nfrom opsagent_tools import jobs\nfrom opsagent_tools.hosts.local import LocalHost\n"
        f"spec = jobs.JobSpec('opsagent-r1-c1', ('sleep', '300'), {str(tmp_path / 'log')!r})\n"
        "job = jobs._start_group(LocalHost(), spec)\n"
        "print(job.pid, flush=True)\nimport time; time.sleep(300)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=env, start_new_session=True, text=True
    )
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    job = jobs.find(host, "opsagent-r1-c1")
    assert job is not None
    assert (job.pid, jobs.status(host, job).state) == (pid, "running")
    assert job.started == Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    jobs.stop(host, job, grace_s=2)
    assert not living(pid)


def test_a_second_start_finds_the_first_and_leaves_its_log_alone(host: NoSystemd, tmp_path: Path) -> None:
    first = jobs.start(host, spec(tmp_path, "echo begun; sleep 300"))
    until(lambda: jobs.read_log(host, first.log)[0] == b"begun\n")
    again = jobs.start(host, spec(tmp_path, "echo begun; sleep 300"))
    assert (again.pid, again.existing) == (first.pid, True)
    assert jobs.read_log(host, again.log)[0] == b"begun\n"
    jobs.stop(host, first, grace_s=2)


def test_stop_ends_the_whole_group(host: NoSystemd, tmp_path: Path) -> None:
    job = jobs.start(host, spec(tmp_path, "sleep 301 & sleep 302 & wait"))
    until(lambda: len(jobs.status(host, job).members) == 3)
    pids = jobs.status(host, job).members
    seen = jobs.stop(host, job, grace_s=5)
    assert (seen.ended, seen.members) == (True, ())
    assert not any(living(pid) for pid in pids)


def test_stop_kills_what_ignores_term(host: NoSystemd, tmp_path: Path) -> None:
    job = jobs.start(host, spec(tmp_path, "trap '' TERM; echo armed; while :; do sleep 0.1; done"))
    until(lambda: jobs.read_log(host, job.log)[0] == b"armed\n")
    seen = jobs.stop(host, job, grace_s=0.3)
    assert (seen.state, seen.exit_code, seen.members) == ("exited", 137, ())


def test_orphans_in_sessions_of_their_own_are_found(host: NoSystemd, tmp_path: Path) -> None:
    job = jobs.start(host, spec(tmp_path, "(setsid sleep 303 &); sleep 0.3; exit 1"))
    until(lambda: jobs.status(host, job).ended)
    left = jobs.status(host, job)
    assert (left.exit_code, len(left.members)) == (1, 1)
    jobs.stop(host, job, grace_s=5)
    assert not living(left.members[0])


def test_dead_before_its_exit_code_is_written_is_not_lost(host: NoSystemd, tmp_path: Path) -> None:
    """Seen on a real GPU machine: one look fell between the death and the supervisor's note of it."""
    job = jobs.start(host, spec(tmp_path, "sleep 300"))
    assert job.pid
    supervisor = int(Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: not living(job.pid or 0))
    assert jobs.status(host, job).state == "running"
    os.kill(supervisor, signal.SIGCONT)
    until(lambda: jobs.status(host, job).ended)
    assert jobs.status(host, job).exit_code == 137


def test_killed_supervisor_is_said(host: NoSystemd, tmp_path: Path) -> None:
    job = jobs.start(host, spec(tmp_path, "sleep 300"))
    assert job.pid
    parent = int(Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    assert jobs.status(host, job).state == "running"
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: jobs.status(host, job).ended)
    assert (jobs.status(host, job).state, jobs.status(host, job).exit_code) == ("lost", None)


def test_environment_is_passed_and_is_seen_by_nobody(host: NoSystemd, tmp_path: Path) -> None:
    secrets: list[str] = []
    ctx = Context(secrets=secrets.append)
    wanted = spec(tmp_path, "echo $HF_TOKEN; sleep 300", env={"HF_TOKEN": 'a"b $x\\`', "PATH": os.environ["PATH"]})
    job = jobs.start(host, wanted, ctx)
    until(lambda: jobs.read_log(host, job.log)[0] == b'a"b $x\\`\n')
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert 'a"b $x' not in shown
    assert secrets == ['a"b $x\\`']
    assert [path.name for path in (tmp_path / "jobs" / "opsagent-r1-c1").iterdir()] == ["job.json"]
    jobs.stop(host, job, grace_s=2)


def test_old_logs_are_kept_and_turned_over(host: NoSystemd, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    for number in range(7):
        probes.ask(host, "job", {"op": "prepare", "name": "opsagent-r1-c1", "log": str(log), "cwd": ""}, stdin="{}")
        log.write_text(f"{number}\n")
    logs = sorted(path.name for path in tmp_path.glob("job.log*"))
    assert logs == ["job.log", "job.log.1", "job.log.2", "job.log.3", "job.log.4", "job.log.5"]
    assert (tmp_path / "job.log.1").read_text() == "5\n"


def test_what_cannot_be_executed_is_an_error_and_leaves_no_job(host: NoSystemd, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed) as caught:
        jobs.start(host, jobs.JobSpec("opsagent-r1-c1", ("/no/such/program",), str(tmp_path / "log")))
    assert "/no/such/program" in caught.value.what
    assert jobs.find(host, "opsagent-r1-c1") is None


def test_missing_folder_is_an_error(host: NoSystemd, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed):
        jobs.start(host, spec(tmp_path, "true", cwd=str(tmp_path / "nowhere")))


@pytest.mark.parametrize("name", ["", "../x", "a b", "-x"])
def test_bad_names(host: NoSystemd, name: str) -> None:
    with pytest.raises(InputError):
        jobs.start(host, jobs.JobSpec(name, ("true",), "/tmp/x"))


def test_wait_ends_with_the_job_or_with_the_operator(host: NoSystemd, tmp_path: Path) -> None:
    job = jobs.start(host, spec(tmp_path, "sleep 0.4; exit 3"))
    assert jobs.wait(host, job, Context(), timeout_s=20, poll_s=0.05).exit_code == 3
    other = jobs.start(host, jobs.JobSpec("opsagent-r1-c2", ("sleep", "300"), str(tmp_path / "log2")))
    assert jobs.wait(host, other, Context(stopped=lambda: True), timeout_s=60).state == "running"
    jobs.stop(host, other, grace_s=2)
