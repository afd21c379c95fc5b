"""The script for a lent GPU machine, against the pretended card: each case finds what it must, and what it must not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench import real_gpu
from hosts.pretend import GRAPHS, Machine, machine
from hosts.sshd import free_port

from opsagent.data import find_runbook
from opsagent_tools import jobs
from opsagent_tools.clock import FastClock
from opsagent_tools.hosts.local import LocalHost


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    here = machine(tmp_path)
    monkeypatch.setenv("PATH", here.path)
    monkeypatch.setenv("OPSAGENT_JOBS_DIR", str(tmp_path / "jobs"))
    yield here
    for home in (tmp_path / "jobs").glob("*"):
        jobs.stop(LocalHost(), jobs.Job(home.name, "group", ""), grace_s=0.5)
    for entry in (tmp_path / "gpu").iterdir():
        if Path(f"/proc/{entry.name}").exists() and int(entry.name) != os.getpid():
            os.kill(int(entry.name), signal.SIGKILL)
    for log in Path("/var/log/sglang").glob(f"opsagent-gpu{os.getpid()}-*"):
        log.unlink()


@pytest.fixture
def bench(made: Machine, tmp_path: Path) -> real_gpu.Bench:
    port = free_port()
    text = find_runbook("runbooks/launch.md").read_text(encoding="utf-8")
    text = text.replace("roots: [", f"roots: [{tmp_path}, ").replace(
        "ports: [30000-30010]", f"ports: [{port}-{port + 1}]"
    )
    (tmp_path / "launch.md").write_text(text)
    return real_gpu.Bench(
        str(made.python), str(made.model), str(tmp_path / "launch.md"), tuple(GRAPHS.split()), {}, port,
        leave_mib=200_000, clock=FastClock(15.0),
    )  # fmt: skip


def test_a_killed_scheduler_and_a_launch_that_does_not_fit(made: Machine, bench: real_gpu.Bench) -> None:
    made.server("f-scheduler-sigkill.log", delay=0.05, PRETEND_WAIT="Rank 0 scheduler", PRETEND_ENDS="1")
    found = real_gpu.measure(bench, ["killed"])
    (row,) = found["cases"]
    assert row["ok"], row
    assert (row["cause"], row["other_spared"], row["left"]) == ("worker-sigkilled", True, {"processes": [], "mib": {}})
    made.server("f-load-oom.log", PRETEND_ENDS="137")
    (row,) = real_gpu.measure(bench, ["full"])["cases"]
    assert row["ok"], row


def test_the_limits_are_compared_and_a_wrong_one_is_said(made: Machine, bench: real_gpu.Bench) -> None:
    found = real_gpu.measure(bench, ["occupied", "tp2"])
    row, two = found["cases"]
    assert row["ok"], row
    assert row["requests"] == [4096, 4096]
    assert (two["ok"], two["not_run"], found["run"]) == (None, "1 card", 1)
    assert found["ok"]
    made.server("f-port-busy.log", PRETEND_BIND="no")  # another start's limits, and it does not get ready
    wrong = real_gpu.measure(replace(bench, port=free_port()), ["occupied"])
    assert not wrong["ok"]


@pytest.mark.soak
def test_the_runbook_cases(bench: real_gpu.Bench) -> None:
    found = real_gpu.measure(bench, ["parser", "busy"])
    assert [row["ok"] for row in found["cases"]] == [True, True], found


def test_what_is_left_running_fails_the_case(
    made: Machine, bench: real_gpu.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves(_bench: real_gpu.Bench) -> real_gpu.Found:
        made.hold(os.getpid(), 5_000)
        return {"ok": True}

    monkeypatch.setitem(real_gpu.CASES, "full", leaves)
    found = real_gpu.measure(bench, ["full"])
    (made.folder / "gpu" / str(os.getpid())).unlink()
    assert (found["ok"], found["cases"][0]["left"]["mib"]) == (False, {0: 5_000})


def test_time_that_is_over_is_said(made: Machine, tmp_path: Path) -> None:
    out = tmp_path / "summary.json"
    words = ["--python", str(made.python), "--model", str(made.model), "--out", str(out), "--limit-s", "1"]
    assert real_gpu.main(words) == 1
    found = json.loads(out.read_text())
    assert (found["run"], {row["ok"] for row in found["cases"]}) == (0, {None})
