"""A command over SSH against the same command without it: how much the link costs. Needs OpenSSH's sshd; loopback only."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from opsagent_tools.host import Command, Host, argv
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.hosts.ssh import SshHost

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the server that the tests use
from hosts.sshd import sshd

COMMANDS = 60
MEGABYTES = 200


def latency_ms(host: Host) -> float:
    """Median of `true`, milliseconds."""
    taken = []
    for _ in range(COMMANDS):
        began = time.perf_counter()
        argv(host, "true")
        taken.append(time.perf_counter() - began)
    return 1000 * median(taken)


def throughput(host: Host) -> float:
    """MB/s of output that is read and clipped."""
    began = time.perf_counter()
    host.run(Command.of("head", "-c", str(MEGABYTES * 1_000_000), "/dev/zero"), keep=1000)
    return MEGABYTES / (time.perf_counter() - began)


def run() -> dict[str, float]:
    """Figures of both ways, and the ratio that matters."""
    with tempfile.TemporaryDirectory() as name, sshd(Path(name)) as server:
        far, near = SshHost("box", server.target), LocalHost()
        argv(far, "true")
        found = {"ssh ms/command": latency_ms(far), "local ms/command": latency_ms(near)}
        found["ssh / local"] = found["ssh ms/command"] / found["local ms/command"]
        found["ssh MB/s"], found["local MB/s"] = throughput(far), throughput(near)
        far.close()
        return found


if __name__ == "__main__":
    for what, value in run().items():
        print(f"{what:<20} {value:>12,.1f}")
