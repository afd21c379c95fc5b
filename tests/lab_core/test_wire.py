"""The lab's SSH server and its faults, through our own transport: what was executed, and which error the client gets."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from opsagent_lab import machines
from opsagent_lab.faults import Fault
from opsagent_lab.lab import Lab
from opsagent_tools.errors import AuthFailed, HostError, HostKeyMismatch, HostUnreachable, OutcomeUnknown
from opsagent_tools.host import Command, Host, argv

Get = Callable[..., Host]


def test_commands_pipes_stdin_env_and_codes(host: Get) -> None:
    pve = host()
    assert argv(pve, "echo", "it's", "a  b", "$HOME", "é").stdout == "it's a  b $HOME é\n"
    assert argv(pve, "cat", stdin="x\ny\n").stdout == "x\ny\n"
    assert argv(pve, "env", env=[("A_B", "1 2")]).stdout.count("A_B=1 2\n") == 1
    piped = pve.run(Command((("cat", "/root/notes.txt"), ("grep", "-n", "t"), ("wc", "-l"))))
    assert (piped.exit_code, piped.stdout) == (0, "2\n")
    assert argv(pve, "false").exit_code == 1
    assert argv(pve, "no-such-program").exit_code == 127
    assert argv(pve, "sh", "-c", "kill -9 $$").exit_code == 137


def test_the_far_side_ends_what_takes_too_long(host: Get) -> None:
    done = host().run(Command.of("sleep", "600", timeout_s=3))
    assert (done.exit_code, done.timed_out) == (124, True)


def test_much_output_is_carried_whole(host: Get) -> None:
    seen = {"stdout": 0, "stderr": 0}

    def sink(stream: str, data: bytes) -> None:
        seen[stream] += len(data)

    done = host().run(Command.of("head", "-c", "20000000", "/dev/zero"), sink=sink)
    assert done.exit_code == 0
    assert seen == {"stdout": 20_000_000, "stderr": 0}


def test_a_container_through_its_parent(host: Get) -> None:
    inside = host("pve/ct129")
    assert argv(inside, "hostname").stdout == "ct129\n"
    assert argv(inside, "sh", "-c", "exit 7").exit_code == 7
    assert argv(inside, "cat", stdin="through\n").stdout == "through\n"


@pytest.mark.parametrize(("when", "ran"), [("before", False), ("during", True), ("after", True)])
def test_a_link_cut_around_a_command(lab: Lab, host: Get, when: str, ran: bool) -> None:
    pve = host()
    assert argv(pve, "true").ok
    lab.faults.add(Fault("drop", "pve", command=2, when=when))  # type: ignore[arg-type]
    assert argv(pve, "true").ok
    with pytest.raises(OutcomeUnknown):
        argv(pve, "sh", "-c", "sleep 1; mkdir /root/made")
    assert lab.faults.struck == 1
    again = host()
    argv(again, "sleep", "20")
    assert argv(again, "test", "-d", "/root/made").ok is ran


@pytest.mark.parametrize("byte", [1, 37, 800, 2500, 4000, 5200])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_link_cut_at_a_byte(lab: Lab, host: Get, byte: int, direction: str) -> None:
    """Whatever the byte, the client knows that it was cut, and an effect happened once or not at all."""
    lab.faults.add(Fault("drop", "pve", byte=byte, direction=direction))  # type: ignore[arg-type]
    cut = 0
    for number in range(60):
        pve = host()
        try:
            argv(pve, "sh", "-c", f"echo {number} >> /root/log")
        except HostError:
            cut += 1
        if lab.faults.struck:
            break
    assert (cut, lab.faults.struck) == (1, 1)
    lines = argv(host(), "cat", "/root/log").stdout.split()
    assert lines in ([str(n) for n in range(number + 1)], [str(n) for n in range(number)])


def test_refused_silent_wrong_key_wrong_login(lab: Lab, host: Get) -> None:
    lab.faults.add(Fault("refuse", "pve"))
    with pytest.raises(HostUnreachable):
        argv(host(), "true")
    lab.faults.add(Fault("host-key", "pve"))
    with pytest.raises(HostKeyMismatch):
        argv(host(), "true")
    lab.faults.add(Fault("refuse-auth", "pve"))
    with pytest.raises(AuthFailed):
        argv(host(), "true")
    assert lab.faults.struck == 3
    assert argv(host(), "true").ok


def test_a_background_unit_survives_the_link(lab: Lab, host: Get) -> None:
    pve = host()
    started = argv(pve, "systemd-run", "--unit=long", "--property=RemainAfterExit=yes", "--", "sleep", "30")
    assert started.ok, started.stderr
    lab.server.cut("pve")
    again = host()
    assert argv(again, "systemctl", "is-active", "long").stdout == "active\n"
    argv(again, "sleep", "40")
    shown = argv(again, "systemctl", "show", "long.service", "--property=SubState,ExecMainStatus").stdout
    assert set(shown.split()) == {"SubState=exited", "ExecMainStatus=0"}


def test_a_reboot_drops_links_and_comes_back_with_a_new_boot_id(
    lab: Lab, host: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "_DOWN_SECONDS", 500.0)  # long enough to be seen from a busy machine
    pve = host()
    before = argv(pve, "cat", "/proc/sys/kernel/random/boot_id").stdout
    argv(pve, "reboot")
    down = threading.Event()
    for _ in range(2000):
        if not lab.world.host("pve").on:
            break
        down.wait(0.01)
    with pytest.raises(HostUnreachable):
        argv(host(), "true")
    for _ in range(2000):
        if lab.world.host("pve").on:
            break
        down.wait(0.01)
    after = argv(host(), "cat", "/proc/sys/kernel/random/boot_id").stdout
    assert len(before) == len(after) == 37
    assert before != after
    assert argv(host("pve/ct129"), "true").ok


def test_eleven_sessions_are_one_too_many(lab: Lab) -> None:
    """sshd's MaxSessions, seen by a client that does not cap itself."""
    import paramiko

    table = lab.hosts()["pve"]
    client = paramiko.SSHClient()
    client.load_host_keys(table["known_hosts"])
    client.connect(
        "127.0.0.1", table["port"], "root", key_filename=table["identity"], look_for_keys=False, allow_agent=False
    )
    transport = client.get_transport()
    assert transport is not None
    channels = []
    for _ in range(10):
        channel = transport.open_session(timeout=60)
        channel.exec_command("sleep 100")
        channels.append(channel)
    with pytest.raises(paramiko.SSHException):
        transport.open_session(timeout=60).exec_command("true")
    client.close()
