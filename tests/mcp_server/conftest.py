"""Simulated hosts behind SSH, and a user's machine in front of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_server.desk import Desk

import opsagent_lab
from opsagent.cli.lab import hosts_toml
from opsagent_lab.lab import Lab


@pytest.fixture(scope="session")
def hybrid() -> Iterator[Lab]:
    with opsagent_lab.open("hybrid", speed=600) as lab:
        yield lab


@pytest.fixture
def desk(hybrid: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.toml").write_text(hosts_toml(hybrid.hosts()), encoding="utf-8")
    return Desk(tmp_path, hybrid)
