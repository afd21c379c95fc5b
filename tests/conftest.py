"""For every test: what a run leaves on this machine as a host lies in the test's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_host_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of other tests, and real ones on this machine, have nothing to do with a test's runs on `local`."""
    monkeypatch.setenv("OPSAGENT_LOCK_DIR", str(tmp_path))
