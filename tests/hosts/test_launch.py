"""A launch with real processes and real sockets: on this machine, and over a real SSH server whose link is cut."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts.sshd import Sshd, free_port

from opsagent_tools import jobs, launch_sglang, stop_server
from opsagent_tools.clock import FastClock
from opsagent_tools.host import Host
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.hosts.ssh import SshHost
from opsagent_tools.launch_sglang import LaunchSglangArgs, LaunchSglangResult
from opsagent_tools.stop_server import StopServerArgs
from opsagent_tools.tool import Context, Progress

TESTS = Path(__file__).parent.parent
SPEED = 6.0
"""No faster: the tools' deadlines are in these seconds, and a busy machine must still meet them."""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that knows one module."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {TESTS}/tools/pretend_server.py "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(autouse=True)
def _cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OPSAGENT_JOBS_DIR", str(tmp_path / "jobs"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    yield
    for home in (tmp_path / "jobs").glob("*"):
        jobs.stop(LocalHost(), jobs.Job(home.name, "group", ""), grace_s=0.5)


def launch(
    host: Host, python: Path, call: str, port: int, delay: float, seen: list[Progress], **env: str
) -> LaunchSglangResult:
    log = str(python.parent / f"{call}.log")
    told = {"PRETEND_LOG": f"{TESTS}/data/logs/tp1-plain.log", "PRETEND_SEED": "4711", "PRETEND_DELAY": str(delay)}
    args: dict[str, Any] = {"model": "/srv/m", "python": str(python), "port": port, "preflight": False, "log": log}
    args["env"] = {**told, **env}
    ctx = Context("r9", call, clock=FastClock(SPEED), progress=seen.append)
    return launch_sglang.run(host, LaunchSglangArgs.model_validate(args), ctx)


def stop(host: Host, result: LaunchSglangResult) -> stop_server.StopServerResult:
    args = StopServerArgs(server=result.model_dump(mode="json"), grace_s=20)
    return stop_server.run(host, args, Context("r9", "c99", clock=FastClock(SPEED)))


def test_ready_and_stopped_on_this_machine(python: Path) -> None:
    port = free_port()
    result = launch(LocalHost(), python, "c1", port, 0.002, [])
    assert (result.state, result.random_seed, result.unit) == ("ready", 4711, "opsagent-r9-c1")
    assert result.pid
    done = stop(LocalHost(), result)
    assert (done.stopped, done.was_running, done.left) == (True, True, [])
    assert len(done.pids) == 2, "the server and its worker"
    assert not Path(f"/proc/{result.pid}/cmdline").exists() or Path(f"/proc/{result.pid}/cmdline").read_text() == ""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def test_busy_port_of_a_real_process(python: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        result = launch(LocalHost(), python, "c2", other.getsockname()[1], 0.0, [])
    assert (result.state, result.cause, result.weights_loaded) == ("failed", "port-in-use", False)
    assert str(os.getpid()) in result.words


def test_ready_that_another_server_caused(python: Path) -> None:
    """It prints "ready" but never listens; meanwhile somebody else takes the port."""
    port, sockets = free_port(), list[socket.socket]()

    class Squatting(list[Progress]):
        def append(self, progress: Progress) -> None:
            super().append(progress)
            if not sockets:
                sockets.append(socket.create_server(("127.0.0.1", port)))

    result = launch(LocalHost(), python, "c3", port, 0.002, Squatting(), PRETEND_BIND="no")
    assert len(sockets) == 1
    sockets[0].close()
    assert (result.state, result.cause) == ("failed", "port-in-use")
    assert jobs.status(LocalHost(), jobs.Job(result.unit, "group", "")).members == ()


def test_log_turned_over_in_the_middle_of_a_launch(python: Path) -> None:
    port, turned, log = free_port(), list[int](), python.parent / "c5.log"

    class Turning(list[Progress]):
        def append(self, progress: Progress) -> None:
            super().append(progress)
            if len(turned) < 2 and log.exists() and log.stat().st_size > 2000:
                shutil.copy(log, f"{log}.1")
                turned.append(log.stat().st_size)
                os.truncate(log, 0)

    result = launch(LocalHost(), python, "c5", port, 0.02, Turning())
    assert len(turned) == 2, "both turns must have happened"
    assert (result.state, result.random_seed) == ("ready", 4711)
    assert result.limits.max_total_num_tokens
    assert result.weights_loaded
    assert stop(LocalHost(), result).stopped


def test_link_cut_in_the_middle_of_a_launch(server: Sshd, python: Path) -> None:
    port, cuts = free_port(), list[int]()

    class Cutting(list[Progress]):
        def append(self, progress: Progress) -> None:
            super().append(progress)
            if len(cuts) < 2 and len(self) >= 2 + 3 * len(cuts) and (hit := server.cut()):
                cuts.append(hit)

    seen = Cutting()
    host = SshHost("box", server.target)
    result = launch(host, python, "c4", port, 0.03, seen)
    assert len(cuts) == 2, "both cuts must have landed"
    assert (result.state, result.random_seed) == ("ready", 4711)
    starts = (python.parent / "c4.log").read_text().count("server_args=")
    assert starts == 1, "started once, whatever happened to the link"
    done = stop(host, result)
    assert (done.stopped, done.left) == (True, [])
    host.close()
