"""Against a real OpenSSH server on loopback."""

from __future__ import annotations

import resource
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hosts.sshd import Sshd, free_port, keygen, sshd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsagent_tools.errors import AuthFailed, HostKeyMismatch, HostUnreachable, InputError, OutcomeUnknown
from opsagent_tools.host import Command, argv
from opsagent_tools.hosts.connect import SshTarget
from opsagent_tools.hosts.inventory import HostEntry, Inventory, open_host
from opsagent_tools.hosts.ssh import SshHost


def test_exit_codes_are_the_commands_own(host: SshHost) -> None:
    assert argv(host, "true").exit_code == 0
    assert argv(host, "sh", "-c", "exit 42").exit_code == 42
    assert argv(host, "no-such-program").exit_code == 127
    both = argv(host, "sh", "-c", "echo out; echo err >&2; exit 255")
    assert (both.exit_code, both.stdout, both.stderr) == (255, "out\n", "err\n")


def test_a_signal_is_128_plus_its_number(host: SshHost) -> None:
    assert argv(host, "sh", "-c", "kill -9 $$").exit_code == 137
    assert argv(host, "sh", "-c", "kill -TERM $$").exit_code == 143


def test_time_limit_ends_the_far_side(host: SshHost, server: Sshd) -> None:
    done = argv(host, "sh", "-c", "echo before; exec sleep 3141", timeout_s=1)
    assert (done.exit_code, done.timed_out, done.stdout) == (124, True, "before\n")
    assert argv(host, "pgrep", "-f", "sleep 3141$").stdout.strip() == ""


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1, max_size=12))
def test_every_argument_arrives_as_it_is(host: SshHost, words: list[str]) -> None:
    chunks: list[bytes] = []
    command = Command.of("printf", "%s\\0", *words)
    host.run(command, sink=lambda stream, data: chunks.append(data) if stream == "stdout" else None)
    assert b"".join(chunks) == b"".join(word.encode() + b"\0" for word in words)


def test_nothing_is_expanded(host: SshHost, tmp_path: Path) -> None:
    marker = tmp_path / "made"
    done = argv(host, "echo", f"$(touch {marker})", f"`touch {marker}`", f"; touch {marker}", "$HOME", "*")
    assert "$HOME *" in done.stdout
    assert not marker.exists()


def test_pipe_stdin_and_environment(host: SshHost) -> None:
    done = host.run(Command((("cat",), ("tr", "a-z", "A-Z")), stdin="héllo\n" * 50_000), keep=100)
    assert done.stdout_bytes == len("héllo\n".encode()) * 50_000
    assert argv(host, "cat").stdout == ""  # without stdin it is closed, not open for ever
    assert argv(host, "printenv", "WEIRD", env=[("WEIRD", "a b'$c\n")]).stdout == "a b'$c\n\n"


def test_invalid_utf8_and_nul_bytes(host: SshHost) -> None:
    done = argv(host, "printf", r"a\000b\377c")
    assert done.stdout == "a\0b\ufffdc"
    assert done.stdout_bytes == 5
    with pytest.raises(InputError):
        argv(host, "echo", "a\0b")


def test_200_mb_in_bounded_memory(host: SshHost) -> None:
    argv(host, "true")
    before, seen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0

    def count(_stream: str, data: bytes) -> None:
        nonlocal seen
        seen += len(data)

    done = host.run(Command.of("head", "-c", "200000000", "/dev/zero"), sink=count, keep=1000)
    assert seen == done.stdout_bytes == 200_000_000
    assert len(done.stdout) < 1100
    grew_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grew_kib < 30_000


def test_output_without_end_is_ended_by_the_limit(host: SshHost) -> None:
    done = argv(host, "yes", timeout_s=1, keep=1000)
    assert done.timed_out
    assert len(done.stdout) < 1100


def test_a_daemon_that_keeps_the_descriptors_does_not_hold_us(host: SshHost) -> None:
    done = argv(host, "sh", "-c", "echo started; sleep 30 & exit 3", timeout_s=20)
    assert (done.exit_code, done.stdout, done.timed_out) == (3, "started\n", False)


def test_link_cut_in_the_middle_is_an_unknown_outcome(server: Sshd, tmp_path: Path) -> None:
    host = SshHost("box", server.target)
    marker, hits = tmp_path / "went-on", []
    timer = threading.Timer(0.7, lambda: hits.append(server.cut()))
    timer.start()
    with pytest.raises(OutcomeUnknown) as caught:
        argv(host, "sh", "-c", f"sleep 1.5; touch {marker}")
    assert hits == [hits[0]]
    assert hits[0] >= 1, "the cut must have landed"
    assert caught.value.exit_code == 7
    for _ in range(100):  # and indeed it happened, although nobody saw it
        if marker.exists():
            break
        time.sleep(0.05)
    assert marker.exists()
    assert argv(host, "echo", "again").stdout == "again\n"  # a fresh link, between commands
    host.close()


def test_a_link_that_died_between_commands_is_opened_again(server: Sshd) -> None:
    host = SshHost("box", server.target)
    assert argv(host, "true").ok
    assert server.cut() >= 1
    assert argv(host, "echo", "back").stdout == "back\n"
    host.close()


def test_many_at_once_share_a_link(host: SshHost) -> None:
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(argv(host, "echo", str(n)).stdout)) for n in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(text) for text in results) == list(range(30))


def test_wrong_key(server: Sshd, tmp_path: Path) -> None:
    keygen(tmp_path / "other")
    with pytest.raises(AuthFailed) as caught:
        argv(SshHost("box", replace(server.target, identity=str(tmp_path / "other"))), "true")
    assert caught.value.where == "box"
    assert "identity" in caught.value.hint


def test_password_is_not_what_it_takes(server: Sshd) -> None:
    with pytest.raises(AuthFailed):
        argv(SshHost("box", replace(server.target, identity="", password="hunter2")), "true")


def test_unknown_host_key(server: Sshd, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("")
    with pytest.raises(HostKeyMismatch) as caught:
        argv(SshHost("box", replace(server.target, known_hosts=str(tmp_path / "known"))), "true")
    assert "unknown" in caught.value.what
    assert (tmp_path / "known").read_text() == ""  # and it is not learned silently


def test_changed_host_key(server: Sshd, tmp_path: Path) -> None:
    keygen(tmp_path / "old")
    key = " ".join((tmp_path / "old.pub").read_text().split()[:2])
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.port} {key}\n")
    with pytest.raises(HostKeyMismatch) as caught:
        argv(SshHost("box", replace(server.target, known_hosts=str(tmp_path / "known"))), "true")
    assert "CHANGED" in caught.value.what
    assert "ssh-keygen -R" in caught.value.hint
    assert caught.value.exit_code == 2


def test_connection_refused(server: Sshd) -> None:
    with pytest.raises(HostUnreachable) as caught:
        argv(SshHost("box", replace(server.target, port=free_port())), "true")
    assert "refused" in caught.value.what
    assert caught.value.exit_code == 3


def test_a_server_that_never_says_hello(server: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = replace(server.target, port=silent.getsockname()[1], connect_timeout_s=0.5)
        with pytest.raises(HostUnreachable):
            argv(SshHost("box", target), "true")


def test_something_else_answers(server: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def serve() -> None:
            client, _ = web.accept()
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            client.close()

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(HostUnreachable):
            argv(SshHost("box", replace(server.target, port=web.getsockname()[1])), "true")


def test_name_that_does_not_resolve(server: Sshd) -> None:
    with pytest.raises(HostUnreachable):
        argv(SshHost("box", replace(server.target, address="no-such-host.invalid")), "true")


def test_jump_host(server: Sshd, tmp_path: Path) -> None:
    with sshd(tmp_path) as inner:
        target = replace(inner.target, jump=server.target)
        host = SshHost("behind", target)
        assert argv(host, "echo", "through").stdout == "through\n"
        assert len([pid for pid in server.sessions()]) >= 1
        host.close()


def test_broken_jump_host_is_named(server: Sshd) -> None:
    target = replace(server.target, jump=replace(server.target, port=free_port()))
    with pytest.raises(HostUnreachable) as caught:
        argv(SshHost("behind", target), "true")
    assert "jump" in caught.value.where


def test_ssh_config_is_honoured(server: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    with sshd(_made(tmp_path / "inner")) as inner:
        known = tmp_path / "known"
        known.write_text((server.folder / "known_hosts").read_text() + (inner.folder / "known_hosts").read_text())
        config.write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.folder}/key\n"
            f"Host deep\n  HostName 127.0.0.1\n  Port {inner.port}\n  IdentityFile {inner.folder}/key\n  ProxyJump gate\n"
            f"Host *\n  User {server.user}\n  UserKnownHostsFile {known}\n  IdentitiesOnly yes\n"
        )
        inventory = Inventory({"box": HostEntry(address="deep", ssh_config=str(config))})
        host = open_host("box", inventory)
        assert argv(host, "echo", "deep").stdout == "deep\n"
        host.close()
        known.write_text((inner.folder / "known_hosts").read_text())
        with pytest.raises(HostKeyMismatch) as caught:  # the jump host's key is checked as well
            argv(open_host("box", inventory), "true")
        assert "gate" in caught.value.where


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_sessions_that_the_server_refuses(tmp_path: Path) -> None:
    with sshd(tmp_path, extra="MaxSessions 0") as server:
        with pytest.raises(HostUnreachable) as caught:
            argv(SshHost("box", server.target), "true")
        assert "MaxSessions" in caught.value.hint


def test_missing_identity_file() -> None:
    with pytest.raises(InputError):
        argv(SshHost("box", SshTarget("127.0.0.1", identity="/no/such/key", ssh_config="none")), "true")
