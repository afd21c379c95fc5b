"""A real OpenSSH server on loopback, as the user who runs the tests."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opsagent_tools.hosts.connect import SshTarget

CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile {folder}/authorized_keys
MaxStartups 100:30:200
SetEnv HOME={folder} OPSAGENT_JOBS_DIR={folder}/jobs OPSAGENT_LOCK_DIR={folder} {env}
{extra}
"""


@dataclass
class Sshd:
    """`target` reaches it with the right key and known_hosts; tests break one thing at a time."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    user: str = field(default_factory=getpass.getuser)

    @property
    def target(self) -> SshTarget:
        return SshTarget(
            "127.0.0.1", self.user, self.port, str(self.folder / "key"), None, str(self.folder / "known_hosts"),
            ssh_config="none", connect_timeout_s=5.0,
        )  # fmt: skip

    def sessions(self) -> list[int]:
        """Pids of the server's processes that serve a connection."""
        return descendants(self.process.pid)

    def cut(self) -> int:
        """Kill the processes that serve the connections (not what they started); returns how many."""
        found = [pid for pid in self.sessions() if name_of(pid).startswith("sshd")]
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        return len(found)


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {root}
    more = found
    while more:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found = found | more
    return sorted(found - {root})


def keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def sshd(folder: Path, extra: str = "", env: str = "") -> Iterator[Sshd]:
    """Start one on a free port and stop it by its pid. `env`: more `NAME=value` for its sessions."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
    assert program, "these tests need OpenSSH's sshd (apt-get install openssh-server)"
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    keygen(folder / "host_key")
    keygen(folder / "key")
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    port = free_port()
    host_key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    (folder / "config").write_text(CONFIG.format(port=port, folder=folder, extra=extra, env=env))
    argv = [program, "-D", "-e", "-f", str(folder / "config")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stderr=log, stdin=subprocess.DEVNULL)
        try:
            _wait(port, process, folder)
            yield Sshd(folder, port, process)
        finally:
            for pid in descendants(process.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)
            process.kill()
            process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.01)
    raise AssertionError("sshd did not answer")
