"""install_env against a simulated machine: from a hashed lock, found again, refused before it does harm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lab_target import USUAL, target

from opsagent_tools import locks
from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.install_env import InstallEnvArgs, run


def test_locks_pin_and_hash_everything() -> None:
    assert locks.versions() == ["0.5.10", "0.5.11", "0.5.23"]
    for version in locks.versions():
        text = locks.text(version)
        pinned = locks.packages(text)
        assert pinned["sglang"] == version
        assert {"torch", "transformers", "huggingface-hub"} <= pinned.keys()
        entries = re.split(r"\n(?=\S)", text.strip())
        assert all("--hash=sha256:" in entry and "==" in entry for entry in entries)


def test_new_then_found(tmp_path: Path) -> None:
    with target(tmp_path) as at:
        args = InstallEnvArgs(sglang="0.5.11", venv="/opt/new")
        first = run(at.host, args, at.ctx())
        assert (first.sglang, first.created, first.fits, first.failed) == ("0.5.11", True, True, False)
        assert first.python == "/opt/new/bin/python"
        assert first.installer == "uv 0.13.9"
        again = run(at.host, args, at.ctx("c2"))
        assert (again.sglang, again.created) == ("0.5.11", False)
        assert at.lab.world.host("gpu1").counters["installs"] == 1


def test_refused_before_anything_happens(tmp_path: Path) -> None:
    with target(tmp_path) as at:
        for version in ("0.5.9", "9.9"):
            with pytest.raises(InputError, match="no lock"):
                run(at.host, InstallEnvArgs(sglang=version, venv="/opt/new"), at.ctx())
        with pytest.raises(ToolFailed, match="holds SGLang"):
            run(at.host, InstallEnvArgs(sglang="0.5.23", venv="/opt/sglang"), at.ctx())
        with pytest.raises(ToolFailed, match="not empty"):
            run(at.host, InstallEnvArgs(sglang="0.5.11", venv="/srv/models/m"), at.ctx())
        assert "installs" not in at.lab.world.host("gpu1").counters


def test_little_disk(tmp_path: Path) -> None:
    small = 'uv = "0.13.9"\ndisk_gib = 30\nused_gib = 20\n'
    with target(tmp_path, small) as at, pytest.raises(ToolFailed, match="GiB are needed"):
        run(at.host, InstallEnvArgs(sglang="0.5.11", venv="/opt/new"), at.ctx())


def test_no_installer(tmp_path: Path) -> None:
    with target(tmp_path, "") as at, pytest.raises(ToolFailed, match="neither uv nor"):
        run(at.host, InstallEnvArgs(sglang="0.5.11", venv="/opt/new"), at.ctx())


def test_no_index(tmp_path: Path) -> None:
    with target(tmp_path, USUAL + "[settings.uv]\noffline = true\n") as at:
        seen = run(at.host, InstallEnvArgs(sglang="0.5.11", venv="/opt/new"), at.ctx())
        assert seen.failed
        assert seen.sglang is None
        assert "Request failed" in seen.words
