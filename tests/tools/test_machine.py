"""Parsers of what programs print. The texts have the shapes of driver 580, Proxmox 8, iproute2 and procps."""

from __future__ import annotations

import os
import socket

import pytest
from fakes import FakeHost
from hypothesis import given
from hypothesis import strategies as st

from opsagent_tools import inspect_host
from opsagent_tools.errors import HostUnreachable
from opsagent_tools.host import Command, Completed, Sink
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.inspect_host import InspectHostArgs
from opsagent_tools.machine import containers, gpus, network, processes, servers, system, venvs

QUERY = """\
0, GPU-aaa, NVIDIA RTX A6000, 00000000:41:00.0, 49140, 2, 48657, 8.6, Disabled, 580.126.09
1, GPU-bbb, NVIDIA RTX A6000, 00000000:81:00.0, 46068, 1, 45500, 8.6, Enabled, 580.126.09
2, GPU-ccc, NVIDIA H200, 00000000:C1:00.0, 143771, 0, 143156, 9.0, [N/A], 580.126.09
"""

LSPCI = """\
0000:41:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102GL [RTX A6000] [10de:2230] (rev a1)
	Subsystem: NVIDIA Corporation GA102GL [RTX A6000] [10de:1459]
	Kernel driver in use: vfio-pci
	Kernel modules: nvidiafb, nouveau
0000:41:00.1 Audio device [0403]: NVIDIA Corporation GA102 High Definition Audio Controller [10de:1aef] (rev a1)
	Kernel driver in use: vfio-pci
	Kernel modules: snd_hda_intel
0000:81:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102GL [RTX A6000] [10de:2230] (rev a1)
	Kernel modules: nvidiafb, nouveau
0000:c1:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2bb1] (rev a1)
	Kernel driver in use: nvidia
"""

SS = """\
State  Recv-Q Send-Q Local Address:Port  Peer Address:PortProcess
LISTEN 0      5          127.0.0.1:19099      0.0.0.0:*    users:(("python3",pid=30477,fd=3))
LISTEN 0      2048         0.0.0.0:30000      0.0.0.0:*    users:(("python",pid=77,fd=60),("python",pid=78,fd=60))
LISTEN 0      4096   127.0.0.53%lo:53         0.0.0.0:*
LISTEN 0      128             [::]:22            [::]:*    users:(("sshd",pid=1,fd=4))
"""

PCT_LIST = """\
VMID       Status     Lock         Name
113        running                 sglang
114        stopped    backup       old
"""

PCT_CONFIG = """\
arch: amd64
cores: 24
dev0: /dev/nvidia0
dev1: path=/dev/nvidiactl,mode=0666
hostname: sglang
memory: 98304
mp0: /tank/models,mp=/models,ro=1
onboot: 1
unprivileged: 1
lxc.cgroup2.devices.allow: c 195:* rwm
lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file
"""

PS = """\
      1       0       1       1 root 900 Ss   /sbin/init
     77       1      77      77 root 800 Sl   python -m sglang.launch_server --model-path /srv/m --port 30000
     78      77      77      77 root 790 Rl   sglang::scheduler_TP0
     90       1      80      80 root 90000 Zl   sglang::scheduler_TP1
     91       1      80      80 root 90000 Sl   sglang::detokenizer
    100       1     100     100 op                                   5 S+   grep sglang.launch_server
"""


def test_cards_that_nvidia_smi_sees() -> None:
    first, second, third = gpus.parse_query(QUERY)
    assert (first.index, first.name, first.pci, first.memory_total_mib, first.ecc) == (
        0,
        "RTX A6000",
        "0000:41:00.0",
        49140,
        False,
    )
    assert (second.ecc, second.memory_total_mib, third.ecc, third.compute_capability) == (True, 46068, None, "9.0")


def test_cards_on_the_bus_and_who_holds_them() -> None:
    found = gpus.parse_lspci(LSPCI)
    assert [(card.pci, card.driver) for card in found] == [
        ("0000:41:00.0", "vfio-pci"), ("0000:81:00.0", "none"), ("0000:c1:00.0", "nvidia"),
    ]  # fmt: skip
    assert found[0].name == "RTX A6000"
    both = gpus.merge(gpus.parse_query(QUERY)[2:], found)
    assert [(card.index, card.driver) for card in both] == [(2, "nvidia"), (None, "vfio-pci"), (None, "none")]


def test_versions_of_the_loaded_module() -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  (dvs-builder)\n"
    assert gpus.parse_module(text) == "580.126.09"
    assert gpus.parse_module("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue\n") == "535.261.03"


@pytest.mark.parametrize(
    ("code", "words", "cause"),
    [
        (
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "nvidia-module-not-loaded",
        ),
        (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "driver-userspace-missing"),
        (18, "Failed to initialize NVML: Driver/library version mismatch", "driver-library-mismatch"),
        (255, "Failed to initialize NVML: Unknown Error", "lxc-device-rules-denied"),
        (127, "command not found", "driver-userspace-missing"),
    ],
)
def test_driver_that_does_not_work_is_named(code: int, words: str, cause: str) -> None:
    host = FakeHost()
    host.programs["nvidia-smi"] = lambda *_a: (code, "", words)
    host.programs["lspci"] = lambda *_a: (0, LSPCI, "")
    driver, cards = gpus.read_gpus(host)
    assert (driver.cause, driver.words) == (cause, words)
    assert len(cards) == 3


def test_listeners() -> None:
    found = network.parse_ss(SS)
    assert [(one.address, one.port, one.pid) for one in found] == [
        ("127.0.0.1", 19099, 30477), ("0.0.0.0", 30000, 77), ("127.0.0.53", 53, None), ("::", 22, 1),
    ]  # fmt: skip


def test_containers() -> None:
    running, stopped = containers.parse_list(PCT_LIST)
    assert (running.ctid, running.status, running.lock, running.name) == (113, "running", "", "sglang")
    assert (stopped.status, stopped.lock, stopped.name) == ("stopped", "backup", "old")
    containers.apply_config(running, PCT_CONFIG)
    assert running.devices == ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert (running.memory_mib, running.cores, running.unprivileged, running.onboot) == (98304, 24, True, True)
    assert containers.parse_list("") == []


def test_servers_and_orphans() -> None:
    host = FakeHost()
    host.files["/proc/77/cmdline"] = (
        b"/opt/sglang/bin/python\0-m\0sglang.launch_server\0--model-path\0/srv/m m\0--port\x0030000\0--api-key\0sk-1\0"
    )
    host.files["/proc/77/cgroup"] = b"0::/system.slice/sglang.service\n"
    found, orphans = servers.read_servers(host, processes.parse_ps(PS), network.parse_ss(SS))
    assert len(found) == 1
    server = found[0]
    assert (server.engine, server.pid, server.model, server.port, server.listening) == (
        "sglang",
        77,
        "/srv/m m",
        30000,
        True,
    )
    assert (server.unit, server.supervised, server.processes) == ("sglang.service", True, [77, 78])
    assert server.argv[-2:] == ["--api-key", "***"]
    assert orphans == [91], "a zombie holds nothing; what has a server is no orphan"


def test_the_supervisor_of_a_launch_is_no_server() -> None:
    """Seen on a real GPU machine: its command line holds the job's words."""
    words = ["python3", "-c", "# opsagent probe: job\nprint()", '{"argv": ["python", "-m", "sglang.launch_server"]}']
    assert servers.engine_of(words) is None
    assert servers.engine_of(["/opt/bin/python3", "-m", "sglang.launch_server"]) == "sglang"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key=sk-1", "--api-key", "sk-2", "x"], ["--api-key=***", "--api-key", "***", "x"]),
        (["HF_TOKEN=abc", "PATH=/bin"], ["HF_TOKEN=***", "PATH=/bin"]),
        (["Authorization: Bearer abc"], ["Authorization: Bearer ***"]),
        (["hf_abcdefghijklmnopqrst"], ["***"]),
        (["--max-total-tokens", "5"], ["--max-total-tokens", "5"]),
    ],
)
def test_secrets_are_masked(words: list[str], shown: list[str]) -> None:
    assert processes.masked(words) == shown


@pytest.mark.parametrize(
    ("cgroup", "unit", "container"),
    [
        ("0::/system.slice/sglang.service\n", "sglang.service", None),
        ("0::/lxc/113/ns/system.slice/x.service\n", "x.service", 113),
        ("0::/lxc.payload.113/init.scope\n", "init.scope", 113),
        ("0::/user.slice/user-0.slice/session-12.scope\n", "session-12.scope", None),
        ("0::/\n", "", None),
    ],
)
def test_who_supervises_a_process(cgroup: str, unit: str, container: int | None) -> None:
    assert processes.unit_of(cgroup) == (unit, container)


@pytest.mark.parametrize(
    ("archs", "capability", "fits"),
    [
        (["sm_80", "sm_90"], "8.6", True),
        (["sm_86"], "8.0", False),
        (["sm_120"], "8.6", False),
        (["sm_90a"], "9.0", True),
        (["sm_100"], "10.3", True),
        (["sm_100a"], "10.3", False),
        (["sm_120"], "12.0", True),
        ([], "8.6", False),
    ],
)
def test_code_that_runs_on_a_card(archs: list[str], capability: str, fits: bool) -> None:
    assert venvs.covers(archs, capability) is fits


def test_disks() -> None:
    text = (
        "Filesystem 1-blocks Used Available Capacity Mounted on\n"
        "/dev/vda 270553174016 1 82588033024 1% /\ntmpfs 100 0 100 0% /dev/shm\ntmpfs 100 0 100 0% /run\n"
        "tank/models 500 1 499 1% /srv/with space\n"
    )
    assert [(disk.mount, disk.free) for disk in system.parse_df(text)] == [
        ("/", 82588033024), ("/dev/shm", 100), ("/srv/with space", 499),
    ]  # fmt: skip


@given(text=st.text())
def test_no_output_breaks_a_parser(text: str) -> None:
    gpus.parse_query(text)
    gpus.parse_apps(text)
    gpus.parse_lspci(text)
    gpus.parse_module(text)
    network.parse_ss(text)
    processes.parse_ps(text)
    containers.parse_list(text)
    system.parse_df(text)


def test_a_machine_where_nothing_can_be_read_still_answers() -> None:
    host = FakeHost(programs={})
    result = inspect_host.run(host, InspectHostArgs())
    assert result.gpus == []
    assert result.errors.keys() >= {"ports"}
    assert result.driver is not None
    assert result.driver.state == "no-nvidia-smi"


def test_a_host_that_is_away_is_an_error() -> None:
    host = FakeHost(faults=[(3, HostUnreachable("refused"))])
    with pytest.raises(HostUnreachable):
        inspect_host.run(host, InspectHostArgs())
    assert host.hits == 1


def test_processes_and_sockets_where_ps_ss_and_curl_are_missing() -> None:
    """A bare container has only Python."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = Bare(), server.getsockname()[1]
        found = network.listeners(host, port)
        assert [(one.address, one.pid) for one in found] == [("127.0.0.1", os.getpid())]
        mine = next(p for p in processes.read_processes(host) if p.pid == os.getpid())
        assert (mine.parent, mine.session) == (os.getppid(), os.getsid(0))
        answer = network.get(host, f"http://127.0.0.1:{port}/x", timeout_s=0.3)
        assert answer.status == 0
        assert answer.body


class Bare(LocalHost):
    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        if command.stages[0][0] in ("ps", "ss", "curl"):
            return Completed(127, "", "not found", 0, 9, 0.0)
        return super().run(command, sink=sink, keep=keep)
