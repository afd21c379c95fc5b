"""The XDG base directories, in every place that keeps a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsagent import config, learning, xdg
from opsagent.cli.diagnose import learned_folder
from opsagent.journal.runs import runs_root


def test_every_folder_follows_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    assert learned_folder() == tmp_path / "c" / "opsagent" / "learned"
    assert dict(config.places(tmp_path))["user"] == tmp_path / "c" / "opsagent" / "opsagent.toml"
    assert runs_root() == tmp_path / "s" / "opsagent" / "runs"
    assert learning.history_file("a").parent == tmp_path / "s" / "opsagent" / "history"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_empty_and_relative_values_count_as_not_set(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert xdg.config_home({"XDG_CONFIG_HOME": value}) == tmp_path / ".config" / "opsagent"
    assert xdg.state_home({"XDG_STATE_HOME": value}) == tmp_path / ".local" / "state" / "opsagent"


def test_which_hosts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    here = tmp_path / "here"
    here.mkdir()
    assert xdg.hosts_file(folder=here) == here / "hosts.toml"
    user = tmp_path / "c" / "opsagent" / "hosts.toml"
    user.parent.mkdir(parents=True)
    user.write_text("")
    assert xdg.hosts_file(folder=here) == user
    (here / "hosts.toml").write_text("")
    assert xdg.hosts_file(folder=here) == here / "hosts.toml"
    assert xdg.hosts_file("other.toml", here) == Path("other.toml")
