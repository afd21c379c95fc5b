"""Hosts out of a scenario: file trees, cards, drivers, environments, models, what is running."""

from __future__ import annotations

import hashlib
import posixpath
import uuid
from typing import Any

from opsagent_lab import machines, modules
from opsagent_lab.clock import LabClock
from opsagent_lab.engine import catalogue, distributions, preloaded
from opsagent_lab.network import Listener
from opsagent_lab.program import Process, Registry, join
from opsagent_lab.programs import (
    changing,
    curl,
    expressions,
    finding,
    hf,
    journal,
    listing,
    nvidia,
    packages,
    pct,
    procs,
    python,
    search,
    shells,
    space,
    system,
    systemd,
    text,
    uv,
)  # fmt: skip
from opsagent_lab.scenario import Machine, Scenario, ScenarioError
from opsagent_lab.state import GIB, Disk, Driver, Gpu, Node, PciDevice, SimHost, Unit, Venv
from opsagent_lab.views import views
from opsagent_lab.world import World

_CARDS = {
    "A6000": ("NVIDIA RTX A6000", "2230", "GA102GL [RTX A6000]", 49140, 467, "8.6", 300, "0x030000", "Disabled"),
    "4090": ("NVIDIA GeForce RTX 4090", "2684", "AD102 [GeForce RTX 4090]", 24564, 482, "8.9", 450, "0x030000", "[N/A]"),
    "PRO 6000": (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "2bb1", "GB202GL [RTX PRO 6000 Blackwell Workstation Edition]",
        97887, 637, "12.0", 600, "0x030000", "Disabled",
    ),
    "H100": ("NVIDIA H100 80GB HBM3", "2330", "GH100 [H100 SXM5 80GB]", 81559, 551, "9.0", 700, "0x030200", "Enabled"),
    "H200": ("NVIDIA H200", "2335", "GH100 [H200 SXM 141GB]", 143771, 616, "9.0", 700, "0x030200", "Enabled"),
}  # fmt: skip
"""Name, PCI id, what lspci says, memory, kept by the driver (MiB), capability, watts, class, ECC."""

_OS = {
    "debian-12": ("Debian GNU/Linux 12 (bookworm)", "debian", "12", "2.36", "6.8.12-4-pve"),
    "ubuntu-24.04": ("Ubuntu 24.04.3 LTS", "ubuntu", "24.04", "2.39", "6.8.0-86-generic"),
    "ubuntu-22.04": ("Ubuntu 22.04.5 LTS", "ubuntu", "22.04", "2.35", "5.15.0-160-generic"),
}
_SBIN = (
    "nvidia-installer",
    "modprobe",
    "lsmod",
    "modinfo",
    "update-initramfs",
    "reboot",
    "shutdown",
    "poweroff",
    "ldconfig",
)
_ONLY_PVE = ("pct", "qm")
_ONLY_DRIVER = ("nvidia-smi", "nvidia-modprobe")
_ONLY_METAL = ("lspci", "modprobe", "lsmod", "modinfo", "update-initramfs")
_NOT_SYSTEM = ("sglang", "hf", "huggingface-cli", "uv", "pip", "pip3", "python")


def registry() -> Registry:
    """Every program of the lab."""
    return join(*(m.PROGRAMS for m in (
        changing, curl, expressions, finding, hf, journal, listing, nvidia, packages, pct, procs, python, search, shells,
        space, system, systemd, text, uv,
    )))  # fmt: skip


def build(scenario: Scenario, speed: float, *, populate: bool = True) -> World:
    """The world as the scenario describes it, before anything of the run happened; without `populate` nothing runs in it."""
    clock = LabClock(speed)
    programs = registry()
    hosts = {name: _host(name, machine, scenario, clock) for name, machine in scenario.hosts.items()}
    world = World(hosts, clock, programs, scenario.seed, dict(scenario.settings), views=views)
    for name, machine in sorted(scenario.hosts.items(), key=lambda item: bool(item[1].parent)):
        _furnish(world, hosts[name], machine, programs)
    for name, machine in scenario.hosts.items() if populate else ():
        _populate(world, hosts[name], machine)
    return world


def _host(name: str, machine: Machine, scenario: Scenario, clock: LabClock) -> SimHost:
    if machine.os not in _OS:
        raise ScenarioError(f"{name}: unknown os {machine.os!r} (known: {', '.join(_OS)})")
    pretty, ident, version, glibc, kernel = _OS[machine.os]
    seed = hashlib.sha256(f"{scenario.name}/{scenario.seed}/{name}".encode()).digest()
    host = SimHost(
        name, machine.hostname or name.rpartition("/")[2], machine.parent, machine.ctid, addresses=list(machine.addresses),
        boot_id=str(uuid.UUID(bytes=seed[:16])), booted=clock.now() - 12 * 86_400, os_name=pretty, os_id=ident,
        os_version=version, glibc=glibc, kernel=kernel, machine_id=seed[16:].hex(), cpus=machine.cpus,
        memory_mib=machine.memory_gib * 1024, pve=machine.pve, systemd=machine.systemd,
    )  # fmt: skip
    if machine.parent:
        above = scenario.hosts.get(machine.parent)
        if above is None:
            raise ScenarioError(f"{name}: its parent {machine.parent!r} is not there")
        host.kernel = _OS[above.os][4]
    device = "/dev/mapper/pve-root" if machine.pve else "/dev/mapper/pve-vm" if machine.parent else "/dev/nvme0n1p2"
    host.disks = [Disk("/", machine.disk_gib * GIB, device, base_used=machine.used_gib * GIB)]
    _add_cards(host, machine, seed)
    if machine.driver:
        loaded = machine.driver if not machine.parent else ""
        host.driver = Driver(loaded, "", machine.driver, machine.cuda)
    return host


def _add_cards(host: SimHost, machine: Machine, seed: bytes) -> None:
    bus = 0x41
    for cards in machine.cards:
        if cards.model not in _CARDS:
            raise ScenarioError(f"{host.name}: unknown card {cards.model!r} (known: {', '.join(_CARDS)})")
        name, ident, words, total, kept, capability, watts, kind, ecc = _CARDS[cards.model]
        for _ in range(cards.count):
            index, address = len(host.gpus), f"0000:{bus:02x}:00.0"
            gpu_id = uuid.UUID(bytes=hashlib.sha256(seed + bytes([index])).digest()[:16])
            host.gpus.append(
                Gpu(index, name, f"GPU-{gpu_id}", address, total, kept, 2, 0, capability,
                    "sm_" + capability.replace(".", ""), watts, ecc=ecc)
            )  # fmt: skip
            label = "VGA compatible controller" if kind == "0x030000" else "3D controller"
            host.pci.append(
                PciDevice(address, "0x10de", f"0x{ident}", kind, label, f"NVIDIA Corporation {words}",
                          driver="" if cards.driver == "nvidia" else cards.driver,
                          modules=["nvidiafb", "nouveau"], iommu_group=40 + index)
            )  # fmt: skip
            if kind == "0x030000":
                held = "vfio-pci" if cards.driver == "vfio-pci" else "snd_hda_intel"
                host.pci.append(
                    PciDevice(f"0000:{bus:02x}:00.1", "0x10de", "0x1aef", "0x040300", "Audio device",
                              "NVIDIA Corporation GA102 High Definition Audio Controller", driver=held,
                              modules=["snd_hda_intel"], iommu_group=40 + index)
                )  # fmt: skip
            bus += 1


def _furnish(world: World, host: SimHost, machine: Machine, programs: Registry) -> None:
    """The file tree of a fresh installation, and what the scenario puts into it."""
    host.nodes["/"] = Node("dir", 0o755, host.booted)
    files = world.files(host)
    for folder in (
        "/dev", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/usr/bin", "/usr/sbin", "/usr/local/bin",
        "/var/log", "/var/lib", "/boot", "/etc/modprobe.d", "/etc/systemd/system", "/usr/lib/x86_64-linux-gnu",
    ):  # fmt: skip
        files.mkdir(folder, parents=True)
    files.mkdir("/tmp", mode=0o1777)
    for name, minor in (("null", 3), ("zero", 5), ("urandom", 9)):
        files.put(f"/dev/{name}", Node("char", 0o666, device=(1, minor)))
    for short in ("bin", "sbin"):
        files.symlink(f"usr/{short}", f"/{short}")
    for name in programs:
        if _has(host, machine, name):
            place = "/usr/sbin" if name in _SBIN else "/usr/bin"
            files.put(f"{place}/{name}", Node(mode=0o755, size=60_000, program=name))
    if machine.uv:
        files.put("/usr/local/bin/uv", Node(mode=0o755, size=60_000_000, program="uv"))
        host.extras["uv"] = machine.uv
    release = (
        f'PRETTY_NAME="{host.os_name}"\nNAME="{host.os_name.split(" (")[0]}"\nID={host.os_id}\n'
        f'VERSION_ID="{host.os_version}"\n'
    )
    files.write("/etc/os-release", release)
    files.write("/etc/machine-id", host.machine_id + "\n")
    files.write("/etc/hostname", host.hostname + "\n")
    if host.pve:
        files.mkdir("/etc/pve/lxc", parents=True)
        files.mkdir("/etc/pve/qemu-server", parents=True)
    for path, content in machine.files.items():
        files.mkdir(posixpath.dirname(path), parents=True)
        files.write(path, content)
    for path in machine.installers:
        files.put(path, Node(mode=0o755, size=386_000_000, program="nvidia-installer"))
    host.initramfs = modules.modprobe_files(host)
    for folder, about in machine.models.items():
        catalogue.place(
            files,
            folder,
            about["repo"],
            missing=tuple(about.get("missing", ())),
            truncated=tuple(about.get("truncated", ())),
        )
    for prefix, about in machine.venvs.items():
        _venv(world, host, prefix, about)


def _has(host: SimHost, machine: Machine, name: str) -> bool:
    """Whether a program belongs to the host's installation."""
    if name in _NOT_SYSTEM or name == "nvidia-installer":
        return False
    if name in _ONLY_PVE:
        return bool(host.pve)
    if name in _ONLY_DRIVER:
        return bool(machine.driver) and not (host.parent and name == "nvidia-modprobe")
    return not (host.parent and name in _ONLY_METAL)


def _venv(world: World, host: SimHost, prefix: str, about: dict[str, object]) -> None:
    """An environment that somebody made earlier."""
    files = world.files(host)
    version = str(about.get("sglang", "0.5.11"))
    python_version = str(about.get("python", "3.12.3"))
    probe = world.add_process(host, ["lab"], pid=0)
    try:
        process = Process(world, host, probe, ["lab"], {}, _Empty(), lambda _b: None, lambda _b: None)
        distributions.create(process, prefix, python_version, pip=False)
        distributions.install(process, prefix, distributions.closure(version))
    finally:
        world.end_process(host, probe.pid)
        host.counters.clear()
    venv: Venv = host.venvs[prefix]
    archs = about.get("archs")
    if isinstance(archs, list):
        venv.arch_list = [str(a) for a in archs]
        venv.notes["kernel_archs"] = " ".join(venv.arch_list)
    files.mkdir(prefix, parents=True)


class _Empty:
    def read(self, _size: int = -1, /) -> bytes:
        return b""


def _populate(world: World, host: SimHost, machine: Machine) -> None:
    """What is running: process 1, the driver, servers, other people's processes."""
    machines.add_init(world, host)
    if not host.parent:
        if host.driver.module and not any(c.driver != "nvidia" for c in machine.cards):
            modules.load_nvidia(world, host)
            modules.make_nodes(world, host)
        elif any(c.driver == "vfio-pci" for c in machine.cards):
            host.modules.append("vfio_pci")
        host.dmesg.clear()
    else:
        machines.pass_devices(world, host)
    for server in machine.servers:
        argv = [server.python, "-m", "sglang.launch_server", *server.argv]
        files = world.files(host)
        files.mkdir(posixpath.dirname(server.log), parents=True)
        files.put(server.log, Node())
        how: dict[str, Any] = {"unit": server.unit, "cgroup": f"/system.slice/{server.unit}"} if server.unit else {}
        sim = preloaded.start(world, host, argv, age_s=server.age_s, log=server.log, ppid=1, **how)
        if server.unit:
            host.units[server.unit] = Unit(
                server.unit, "SGLang", "active", "running", main_pid=sim.pid, exec_main_pid=sim.pid, argv=argv,
                enabled=True, started=sim.started, properties={"StandardOutput": f"append:{server.log}"},
            )  # fmt: skip
    for gone in machine.failed:
        ended = world.now() - gone.age_s
        code, status = (2, gone.signal) if gone.signal else (1, gone.status)
        host.units[gone.unit] = Unit(
            gone.unit, "SGLang", "failed", "failed", "signal" if gone.signal else "exit-code", argv=list(gone.argv),
            exec_main_pid=900 + len(host.units), exec_main_code=code, exec_main_status=status, started=ended - 40,
            ended=ended,
            properties={"StandardOutput": f"append:{gone.log}"} if gone.log else {},
        )  # fmt: skip
    for other in machine.processes:
        held = {world.machine(host).gpus[int(i)].uuid: mib for i, mib in other.gpu_mib.items()}
        sim = world.add_process(
            host, list(other.argv), title=other.title, user=other.user, started=world.now() - other.age_s,
            gpu_mib=held, rss_mib=other.rss_mib,
        )  # fmt: skip
        for port in other.ports:
            world.listen(Listener(host.name, "0.0.0.0", port, sim.pid))
