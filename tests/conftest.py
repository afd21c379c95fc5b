"""For every test: what a run leaves on this machine lies in the test's folder, and one test at a time uses it as a host."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_host_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of other tests, and real ones on this machine, have nothing to do with a test's runs on `local`."""
    monkeypatch.setenv("OPSAGENT_LOCK_DIR", str(tmp_path))


THIS_MACHINE = (
    "tests/hosts/test_named_right",
    "tests/hosts/test_launch",
    "tests/hosts/test_real_gpu",
    "tests/loop/test_locking",
)
"""Tests that start model servers on this machine, or watch those that are there: to one another they would be bystanders."""


@pytest.fixture(autouse=True)
def alone_on_this_machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests run in several processes; a file lock keeps these apart (their folder's parent is common to all)."""
    if not request.node.nodeid.startswith(THIS_MACHINE):
        yield
        return
    with (tmp_path_factory.getbasetemp().parent / "this-machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pytest_xdist_auto_num_workers() -> int:
    """One for each core, two at least: the tests start many programs of their own, and some watch a clock."""
    return max(2, os.cpu_count() or 2)
