"""What we read of an SSH configuration is what OpenSSH reads (`ssh -G`)."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paramiko.config import SSHConfig

from opsagent_tools.hosts.connect import aliases
from opsagent_tools.hosts.ssh_config import config_text, names_of

MAIN = """
Include conf.d/*.conf "with space.conf" missing.conf
Host gate
  HostName 10.0.0.1
  Port=2200
Host own
  HostName 10.0.0.2
Host *
  User everybody
  Include last.conf
  IdentitiesOnly yes
"""
FILES = {
    "conf.d/10-a.conf": "Host alpha\n  HostName 10.0.1.1\n  ProxyJump gate\n  IdentityFile ~/.ssh/ops\n",
    "conf.d/20-b.conf": "User of-b\nHost beta\n  HostName 10.0.1.2\nInclude deeper.conf\n",
    "deeper.conf": "Host never\n",
    "with space.conf": "Host gamma\n  Port 2222\n",
    "last.conf": "Host delta\n  HostName 10.0.1.4\n",
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ".ssh"
    (folder / "conf.d").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "config").write_text(MAIN)
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder / "config"


def openssh(config: Path, host: str) -> dict[str, str]:
    """`ssh -G` of a copy in which relative includes are absolute (they are relative to the real user's home there)."""
    absolute = config.parent / "absolute"
    text = config.read_text().replace("conf.d/*.conf", f"{config.parent}/conf.d/*.conf")
    text = text.replace('"with space.conf"', f'"{config.parent}/with space.conf"').replace(
        "last.conf", f"{config.parent}/last.conf"
    )
    absolute.write_text(text)
    done = subprocess.run(["ssh", "-G", "-F", str(absolute), host], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.mark.parametrize("host", ["alpha", "beta", "gamma", "delta", "gate", "own", "other"])
def test_as_openssh_reads_it(config: Path, host: str) -> None:
    ours = SSHConfig()
    ours.parse(io.StringIO(config_text(config)))
    found, theirs = ours.lookup(host), openssh(config, host)
    assert found["hostname"] == theirs["hostname"]
    assert found.get("user", "") == theirs["user"]
    assert found.get("port", "22") == theirs["port"]
    assert found.get("proxyjump", "") == theirs.get("proxyjump", "")
    assert found.get("identitiesonly", "no") == theirs["identitiesonly"]


def test_aliases_are_found_in_included_files(config: Path) -> None:
    assert {"alpha", "beta", "gamma", "delta", "gate", "own"} <= aliases()
    assert set(names_of(config_text(config))) >= {"alpha", "beta", "gamma", "delta", "gate", "own"}


def test_relative_patterns_lie_beside_the_configuration_in_included_files_too(config: Path) -> None:
    (config.parent / "conf.d" / "30-c.conf").write_text("Include other.conf\n")
    (config.parent / "other.conf").write_text("Host found\n")
    (config.parent / "conf.d" / "other.conf").write_text("Host lost\n")
    config.write_text("Include conf.d/30-c.conf\n")
    assert names_of(config_text(config)) == ["found"]


def test_a_circle_ends_and_what_is_no_pattern_is_nothing(config: Path) -> None:
    config.write_text("Include config / '' \"\" **x\nInclude\nHost a\n  HostName b\n")
    assert "a" in names_of(config_text(config))


@given(
    text=st.text(
        st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=200
    )
)
def test_without_includes_nothing_changes(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any-config"
    path.write_text(text, encoding="utf-8")
    if "include" not in text.lower():
        assert config_text(path).splitlines() == text.splitlines() or not text
