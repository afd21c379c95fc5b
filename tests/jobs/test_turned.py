"""Logs that are turned over while they are written and read: by us, by logrotate, in both of its ways."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsagent_tools import jobs, probes, tail_log
from opsagent_tools.host import Command, Completed, Sink
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.logfile import GAP, Place, read_on
from opsagent_tools.tail_log import TailLogArgs

LOGS = Path(__file__).parent.parent / "data" / "logs"
WRITER = "import sys,time\nfor n in range(1200):\n    print(f'{n:05d} ' + 'x' * 93, flush=True); time.sleep(0.003)\n"


class NoSystemd(LocalHost):
    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        if command.stages[0][0] in ("systemctl", "systemd-run"):
            return Completed(127, "", "systemctl: command not found", 0, 28, 0.0)
        return super().run(command, sink=sink, keep=keep)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NoSystemd]:
    monkeypatch.setenv("OPSAGENT_JOBS_DIR", str(tmp_path / "jobs"))
    yield NoSystemd()
    for home in (tmp_path / "jobs").glob("*"):
        jobs.stop(NoSystemd(), jobs.Job(home.name, "group", ""), grace_s=0.2)


def until(look: Callable[[], bool]) -> None:
    for _ in range(800):
        if look():
            return
        time.sleep(0.025)
    raise AssertionError("it did not happen")


@pytest.mark.soak  # on a busy machine the reader may be behind by more than one turn, which is not promised
def test_a_job_that_writes_much_keeps_its_log_short_and_is_read_whole(host: NoSystemd, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    argv = (sys.executable, "-c", WRITER)
    job = jobs.start(host, jobs.JobSpec("opsagent-r1-c1", argv, str(log), log_limit=50_000, look_s=0.05))
    got, at, longest = b"", Place(), 0
    while True:
        ended = jobs.status(host, job).ended
        new, at = read_on(host, job.log, at)
        got += new
        longest = max(longest, log.stat().st_size)
        if ended and not new:
            break
    numbers = [
        int(line.split()[0]) for line in got.decode().splitlines() if line.endswith("xxx") and line[:5].isdigit()
    ]
    assert Path(f"{log}.1").exists(), "it was turned over"
    assert longest < 110_000 < 1200 * 100
    assert numbers == sorted(set(numbers)), "in order, nothing twice"
    assert numbers[0] == 0
    assert numbers[-1] == 1199
    assert len(numbers) > 1100, "at most the instants of the cuts are lost"


def test_a_unit_is_watched_from_beside_it_until_it_ends(tmp_path: Path, host: NoSystemd) -> None:
    log = tmp_path / "unit.log"
    with log.open("ab") as out:
        unit = subprocess.Popen([sys.executable, "-c", WRITER], stdout=out)
    started = Path(f"/proc/{unit.pid}/stat").read_text().rpartition(")")[2].split()[19]
    wanted = {"op": "watch", "log": str(log), "pid": unit.pid, "started": started, "limit": 30_000, "every": 0.05}
    watcher = int(probes.ask(host, "job", wanted)["watching"])
    until(lambda: Path(f"{log}.2").exists())
    unit.wait()
    until(lambda: not Path(f"/proc/{watcher}").exists() or "Z" in Path(f"/proc/{watcher}/stat").read_text().split()[2])
    assert log.stat().st_size < 100_000
    assert b"# opsagent: this log goes on from unit.log.1" in log.read_bytes()[:200]


@pytest.mark.parametrize("way", ["copytruncate", "rename"])
def test_logrotate_in_both_ways(way: str, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("one\ntwo\n")
    first, at = read_on(LocalHost(), str(log), Place())
    with log.open("a") as more:
        more.write("three\n")
    if way == "rename":
        log.rename(f"{log}.1")
    else:
        shutil.copy(log, f"{log}.1")
        os.truncate(log, 0)
    with log.open("a") as more:
        more.write("four\n")
    second, at = read_on(LocalHost(), str(log), at)
    assert first + second == b"one\ntwo\nthree\nfour\n"
    assert read_on(LocalHost(), str(log), at) == (b"", at)


def test_a_cut_without_a_copy_is_said(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("one\ntwo\n")
    _first, at = read_on(LocalHost(), str(log), Place())
    log.write_text("new\n")
    assert read_on(LocalHost(), str(log), at)[0] == GAP + b"new\n"


def test_no_file_yet(tmp_path: Path) -> None:
    assert read_on(LocalHost(), str(tmp_path / "none"), Place()) == (b"", Place())


SERVING = (
    "[2026-11-30 10:00:00] Decode batch, #running-req: 1, #token: 40, token usage: 0.00, gen throughput (token/s): 40\n"
)
HEALTHY = (LOGS / "tp2-mrr8-msf82.log").read_text(errors="replace")


@pytest.mark.parametrize("mark", ["# opsagent: this log goes on from s.log.1\n", ""])
def test_the_start_of_a_turned_log_is_found(mark: str, tmp_path: Path) -> None:
    log = tmp_path / "s.log"
    log.write_text(mark + SERVING * 50)
    Path(f"{log}.1").write_text(SERVING * 3)
    Path(f"{log}.2").write_text(HEALTHY)
    found = tail_log.run(LocalHost(), TailLogArgs(path=str(log)))
    assert (found.state, found.facts.limits.max_total_num_tokens) == ("ready", 190_215)


def test_an_older_start_is_not_the_start_of_a_new_log(tmp_path: Path) -> None:
    log = tmp_path / "s.log"
    log.write_text("".join(line for line in HEALTHY.splitlines(True)[:3] if "server_args=" not in line))
    Path(f"{log}.1").write_text(HEALTHY)
    found = tail_log.run(LocalHost(), TailLogArgs(path=str(log)))
    assert found.state != "ready"
    assert found.facts.limits.max_total_num_tokens is None
