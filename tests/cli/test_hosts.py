"""`opsagent hosts` against a real OpenSSH server on loopback, and against the lab for a container."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hosts.sshd import Sshd, free_port, keygen, sshd
from lab_core_small import SMALL

import opsagent_lab
from opsagent.cli import cli
from opsagent.cli.lab import hosts_toml
from opsagent_tools.hosts.inventory import load_inventory


@dataclass(frozen=True)
class User:
    """A person with a home, a working folder, and nothing configured."""

    home: Path
    work: Path

    @property
    def file(self) -> Path:
        return self.work / "hosts.toml"

    @property
    def known(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    def do(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(cli, ["hosts", *words, "--json"], standalone_mode=False)
        assert done.exception is None, done.exception
        return int(done.return_value), json.loads(done.stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    made = User(tmp_path / "home", tmp_path / "work")
    made.home.mkdir()
    made.work.mkdir()
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made.home / ".config"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.chdir(made.work)
    return made


def reach(server: Sshd) -> list[str]:
    return [
        "--address",
        "127.0.0.1",
        "--user",
        server.user,
        "--port",
        str(server.port),
        "--identity",
        f"{server.folder}/key",
    ]


def fingerprint(server: Sshd) -> str:
    listed = subprocess.run(
        ["ssh-keygen", "-lf", str(server.folder / "host_key.pub")], capture_output=True, text=True, check=True
    )
    return listed.stdout.split()[1]


def test_an_unknown_key_is_shown_and_refused_and_accepted_by_its_fingerprint(server: Sshd, user: User) -> None:
    user.known.parent.mkdir(mode=0o700)
    (user.known.parent / "config").write_text("HashKnownHosts no\n")  # Debian's own configuration says yes
    code, said = user.do("add", "box", *reach(server))
    assert (code, said["ok"], said["written"]) == (2, False, True)
    (check,) = said["checks"]
    assert fingerprint(server) in check["detail"]
    assert f"opsagent hosts test box --accept-key {fingerprint(server)}" in check["hint"]
    assert not user.known.exists(), "nothing is trusted on first use"

    other = "SHA256:" + "A" * 43
    code, said = user.do("test", "box", "--accept-key", other)
    assert code == 2
    assert other in said["checks"][0]["detail"]
    assert not user.known.exists()

    code, said = user.do("test", "box", "--accept-key", fingerprint(server))
    assert (code, said["ok"]) == (0, True)
    key = " ".join((server.folder / "host_key.pub").read_text().split()[:2])
    assert user.known.read_text() == f"[127.0.0.1]:{server.port} {key}\n"
    assert (user.known.stat().st_mode & 0o777, user.known.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert user.do("test")[0] == 0


def test_openssh_itself_takes_the_line(server: Sshd, user: User) -> None:
    assert user.do("add", "box", *reach(server), "--accept-key", fingerprint(server))[0] == 0
    done = subprocess.run(
        ["ssh", "-F", "none", "-o", f"UserKnownHostsFile={user.known}", "-o", "StrictHostKeyChecking=yes",
         "-i", f"{server.folder}/key", "-p", str(server.port), f"{server.user}@127.0.0.1", "echo", "in"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr


def test_names_are_hashed_where_openssh_would_hash_them(server: Sshd, user: User) -> None:
    (user.home / ".ssh").mkdir()
    (user.home / ".ssh" / "config").write_text("HashKnownHosts yes\n")
    user.known.write_text("other.example ssh-ed25519 AAAA")  # without a newline at its end
    assert user.do("add", "box", *reach(server), "--accept-key", fingerprint(server))[0] == 0
    first, second = user.known.read_text().splitlines()
    assert first == "other.example ssh-ed25519 AAAA"
    assert second.startswith("|1|")
    found = subprocess.run(
        ["ssh-keygen", "-F", f"[127.0.0.1]:{server.port}", "-f", str(user.known)], capture_output=True, check=False
    )
    assert found.returncode == 0
    assert user.do("test")[0] == 0


def test_a_changed_key_is_never_accepted(server: Sshd, user: User, tmp_path: Path) -> None:
    keygen(tmp_path / "old")
    user.known.parent.mkdir()
    old = f"[127.0.0.1]:{server.port} {' '.join((tmp_path / 'old.pub').read_text().split()[:2])}\n"
    user.known.write_text(old)
    code, said = user.do("add", "box", *reach(server), "--accept-key", fingerprint(server))
    assert code == 2
    assert "CHANGED" in said["checks"][0]["detail"]
    assert user.known.read_text() == old


def test_a_revoked_key_is_not_added(server: Sshd, user: User) -> None:
    user.known.parent.mkdir()
    key = " ".join((server.folder / "host_key.pub").read_text().split()[:2])
    user.known.write_text(f"@revoked * {key}\n")
    code, said = user.do("add", "box", *reach(server), "--accept-key", fingerprint(server))
    assert code == 2
    assert "revoked" in said["checks"][0]["detail"]
    assert user.known.read_text() == f"@revoked * {key}\n"
    user.known.write_text(f"[127.0.0.1]:{server.port} {key}\n@revoked * {key}\n")  # nor trusted when it was known
    code, said = user.do("test", "box")
    assert (code, "revoked" in said["checks"][0]["detail"]) == (2, True)


def test_marked_and_broken_lines_of_known_hosts(server: Sshd, user: User) -> None:
    user.known.parent.mkdir()
    key = " ".join((server.folder / "host_key.pub").read_text().split()[:2])
    user.known.write_text(f"# ours\n@cert-authority *.example {key}\n[127.0.0.1]:{server.port} {key}\n")
    assert user.do("add", "box", *reach(server))[0] == 0
    user.known.write_text("box ssh-ed25519 AAAAB\n")
    code, said = user.do("test", "box")
    assert (code, "known hosts" in said["checks"][0]["detail"]) == (2, True)


@pytest.mark.parametrize("text", ["ab:cd:ef", "SHA256:short", "yes"])
def test_only_a_fingerprint_accepts(server: Sshd, user: User, text: str) -> None:
    code, said = user.do("add", "box", *reach(server), "--accept-key", text)
    assert code == 2
    assert "fingerprint" in said["checks"][0]["detail"]


def test_aliases_identity_and_proxyjump_of_the_ssh_configuration(server: Sshd, user: User, tmp_path: Path) -> None:
    inner_folder = tmp_path / "inner"
    inner_folder.mkdir()
    with sshd(inner_folder) as inner:
        (user.home / ".ssh").mkdir()
        (user.home / ".ssh" / "config").write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.folder}/key\n"
            f"Host deep gpu*\n  HostName 127.0.0.1\n  Port {inner.port}\n  IdentityFile {inner.folder}/key\n"
            "  ProxyJump gate\n"
            f"Host *\n  User {server.user}\n  IdentitiesOnly yes\n"
        )
        code, said = user.do("add", "deep", "--label", "behind the gate")  # the address is the alias of that name
        assert code == 2
        assert fingerprint(server) in said["checks"][0]["detail"], "the jump host is asked first"
        code, said = user.do("test", "deep", "--accept-key", fingerprint(server), "--accept-key", fingerprint(inner))
        assert (code, len(user.known.read_text().splitlines())) == (0, 2)
        assert tomllib.loads(user.file.read_text())["hosts"] == {
            "deep": {"address": "deep", "label": "behind the gate"}
        }
        assert user.do("test", "gate", "deep")[0] == 0, "an alias needs no entry"
        listed = {row["name"]: row for row in user.do("list")[1]["hosts"]}
        assert set(listed) == {"deep", "gate", "local"}
        assert listed["gate"]["source"] == "~/.ssh/config"


def test_comments_stay_and_an_empty_value_removes(user: User) -> None:
    before = '# ours\n[hosts.a] # rack 1\naddress = "10.0.0.5"  # by DHCP\nuser = "root"\n\n[hosts.b]\naddress = "b"\n'
    user.file.write_text(before)
    user.file.chmod(0o640)
    assert user.do("add", "a", "--user", "", "--port", "2222", "--tier-cap", "R1", "--no-test")[0] == 0
    assert user.do("add", "a/ct129", "--via", "a", "--pct", "129", "--no-test")[0] == 0
    text = user.file.read_text()
    assert all(comment in text for comment in ("# ours\n", "# rack 1\n", "# by DHCP\n"))
    assert tomllib.loads(text)["hosts"] == {
        "a": {"address": "10.0.0.5", "port": 2222, "tier_cap": "R1"},
        "b": {"address": "b"},
        "a/ct129": {"via": "a", "pct": 129},
    }
    assert load_inventory(user.file).entries["a/ct129"].pct == 129
    assert user.file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in user.work.iterdir()] == ["hosts.toml"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["local", "--address", "x"], "reserved"),
        (["a b", "--address", "x"], "bad host name"),
        (["new"], "address"),
        (["new", "--via", "nobody", "--pct", "100"], "nobody"),
        (["new", "--via", "a"], "pct"),
        (["a", "--via", "a", "--pct", "100"], "either"),
    ],
)
def test_a_wrong_entry_changes_nothing(user: User, words: list[str], what: str) -> None:
    before = '[hosts.a]\naddress = "x"\n'
    user.file.write_text(before)
    code, said = user.do("add", *words)
    assert code == 2
    assert what in said["error"]["what"] + said["error"]["hint"]
    assert user.file.read_text() == before


@pytest.mark.parametrize("text", ["[hosts.a\n", "hosts = 3\n", '[hosts]\na = "x"\n', "[host.a]\naddress = 'x'\n"])
def test_a_file_that_is_none_is_left_alone(user: User, text: str) -> None:
    user.file.write_text(text)
    assert user.do("add", "a", "--address", "x", "--no-test")[0] == 2
    assert user.file.read_text() == text


@pytest.mark.parametrize(
    "text", ["hosts = {a = {address = 'x'}}\n", "hosts.a.address = 'x'\n", "[hosts]\na = {address = 'x'} # c\n", ""]
)
def test_every_style_of_toml(user: User, text: str) -> None:
    user.file.write_text(text)
    assert user.do("add", "b", "--address", "y", "--no-test")[0] == 0
    assert load_inventory(user.file).entries["b"].address == "y"


def test_a_link_is_followed(user: User) -> None:
    real = user.home / "shared.toml"
    real.write_text('[hosts.a]\naddress = "x"\n')
    user.file.symlink_to(real)
    assert user.do("add", "b", "--address", "y", "--no-test")[0] == 0
    assert user.file.is_symlink()
    assert set(load_inventory(real).entries) == {"a", "b"}


def test_a_host_that_does_not_answer_is_written_and_said(user: User) -> None:
    code, said = user.do("add", "box", "--address", "127.0.0.1", "--port", str(free_port()))
    assert (code, said["written"], said["ok"]) == (3, True, False)
    assert load_inventory(user.file).entries["box"].address == "127.0.0.1"


def test_nothing_to_test(user: User) -> None:
    code, said = user.do("test")
    assert (code, set(said)) == (2, {"error"})


def test_a_container_is_reached_through_its_parent(user: User, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    with opsagent_lab.open(str(tmp_path / "small.toml")) as lab:
        containers = {name: table for name, table in lab.hosts().items() if table.get("via")}
        name, table = next(iter(containers.items()))
        user.file.write_text(hosts_toml({n: t for n, t in lab.hosts().items() if n not in containers}))
        code, said = user.do("add", name, "--via", table["via"], "--pct", str(table["pct"]))
        assert (code, [check["ok"] for check in said["checks"][:1]]) == (0, [True])
