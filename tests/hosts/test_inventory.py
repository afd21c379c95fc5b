from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakeHost

from opsagent_tools.errors import HostUnreachable, InputError
from opsagent_tools.host import Command, Host, argv
from opsagent_tools.hosts.container import ContainerHost
from opsagent_tools.hosts.inventory import Inventory, load_inventory, open_host
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.hosts.ssh import SshHost


def load(tmp_path: Path, text: str) -> Inventory:
    (tmp_path / "hosts.toml").write_text(text)
    return load_inventory(tmp_path / "hosts.toml")


def test_hosts_and_their_containers(tmp_path: Path) -> None:
    inventory = load(tmp_path, """
        [hosts.gate]
        address = "gate.example"
        [hosts.kpro5]
        address = "10.0.0.5"
        user = "root"
        port = 2222
        jump = "gate"
        label = "blue rack"
        tier_cap = "R2"
        [hosts."kpro5/ct129"]
        via = "kpro5"
        pct = 129
    """)  # fmt: skip
    opened: dict[str, Host] = {}
    container = open_host("kpro5/ct129", inventory, opened)
    assert isinstance(container, ContainerHost)
    parent = open_host("kpro5", inventory, opened)
    assert container.parent is parent, "the container uses its parent's link"
    assert isinstance(parent, SshHost)
    assert (parent.target.address, parent.target.port, parent.target.user) == ("10.0.0.5", 2222, "root")
    assert parent.target.jump
    assert parent.target.jump.address == "gate.example"
    assert (inventory.label("kpro5"), inventory.entries["kpro5"].tier_cap) == ("blue rack", "R2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[hosts.a]\naddres = "x"', "did you mean `address`"),
        ('[host.a]\naddress = "x"', "did you mean `hosts`"),
        ('[hosts.local]\naddress = "x"', "reserved"),
        ('[hosts.a]\naddress = "x"\npassword = "y"', "password_env"),
        ('[hosts.a]\naddress = "x"\nport = "22"', "port"),
        ('[hosts.a]\naddress = "x"\nport = 70000', "port"),
        ('[hosts.a]\naddress = "x"\ntier_cap = "R9"', "tier_cap"),
        ("[hosts.a]\nlabel = 'x'", "`address` or `via`"),
        ('[hosts.a]\nvia = "b"\npct = 101', "no host 'b'"),
        ('[hosts.ab]\naddress = "x"\n[hosts.c]\nvia = "aab"\npct = 101', "did you mean `ab`"),
        ('[hosts.a]\nvia = "b"\npct = 101\n[hosts.b]\nvia = "a"\npct = 102', "circle"),
        ('[hosts.a]\nvia = "b"', "`via` and `pct`"),
        ("[hosts.a\n", "not TOML"),
    ],
)
def test_faults_are_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert words in f"{caught.value.what} {caught.value.hint}"
    assert caught.value.where == str(tmp_path / "hosts.toml")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        load_inventory(tmp_path / "nothing.toml")


def test_unknown_host(tmp_path: Path) -> None:
    inventory = load(tmp_path, '[hosts.kpro5]\naddress = "x"')
    with pytest.raises(InputError) as caught:
        open_host("kpro6", inventory)
    assert "kpro5" in caught.value.what
    assert "hosts.toml" in caught.value.hint


def test_local_is_this_machine() -> None:
    assert isinstance(open_host("local"), LocalHost)


def test_aliases_of_the_ssh_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host gpu01 gpu*\n  HostName 10.0.0.1\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert isinstance(open_host("gpu01"), SshHost)
    with pytest.raises(InputError):
        open_host("gpu02")  # only a pattern
    assert isinstance(open_host("root@10.0.0.9:2222"), SshHost)


def test_password_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = load(tmp_path, '[hosts.a]\naddress = "x"\npassword_env = "A_PASSWORD"')
    with pytest.raises(InputError):
        open_host("a", inventory)
    monkeypatch.setenv("A_PASSWORD", "hunter2")
    host = open_host("a", inventory)
    assert isinstance(host, SshHost)
    assert host.target.password == "hunter2"
    assert "hunter2" not in repr(host)


def test_a_container_runs_every_stage_through_its_parent() -> None:
    parent = FakeHost()
    container = ContainerHost("kpro5/ct129", parent, 129)
    command = Command((("ps", "aux"), ("grep", "a b")), env={"X": "1"}, timeout_s=30)
    container.run(command)
    assert tuple(parent.commands) == container.wrapped(command).stages
    assert tuple(parent.commands) == (
        ("pct", "exec", "129", "--", "env", "X=1", "timeout", "-k", "2", "30", "ps", "aux"),
        ("pct", "exec", "129", "--", "env", "X=1", "timeout", "-k", "2", "30", "grep", "a b"),
    )
    assert container.wrapped(command).timeout_s > 30


def test_a_container_that_does_not_run_is_unreachable_and_not_an_exit_code() -> None:
    parent = FakeHost()
    parent.programs["pct"] = lambda *_a: (255, "", "container '129' not running!\n")
    with pytest.raises(HostUnreachable) as caught:
        argv(ContainerHost("kpro5/ct129", parent, 129), "true")
    assert caught.value.where == "kpro5/ct129"
    parent.programs["pct"] = lambda *_a: (255, "", "some program's own words\n")
    assert argv(ContainerHost("kpro5/ct129", parent, 129), "true").exit_code == 255
