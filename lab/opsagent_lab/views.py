"""/proc and /sys of a simulated host, computed from its state."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

from opsagent_lab import processes
from opsagent_lab.files import View, error
from opsagent_lab.state import Node, PciDevice, SimHost, SimProcess

if TYPE_CHECKING:
    from opsagent_lab.world import World

_DIR = Node("dir", 0o555)


def views(world: World, host: SimHost) -> dict[str, View]:
    """The computed subtrees of a host."""
    return {"/proc": Proc(world, host), "/sys": Sys(world, host)}


def text_node(text: str, mode: int = 0o444) -> Node:
    data = text.encode()
    return Node("file", mode, data=data, size=len(data))


def comm(sim: SimProcess) -> str:
    """The short name of a process, as the kernel keeps it."""
    return (sim.title or posixpath.basename(sim.argv[0] if sim.argv else "?"))[:15]


class Proc:
    """procfs: what our tools and people read of it."""

    def __init__(self, world: World, host: SimHost) -> None:
        self.world, self.host = world, host
        self.machine = world.machine(host)

    def get(self, path: str) -> Node | None:
        parts = path.strip("/").split("/")[1:]
        if not parts:
            return _DIR
        if parts[0] == "self":
            return _DIR if len(parts) == 1 else None
        if parts[0].isdigit():
            sim = next((s for s in processes.seen(self.world, self.host) if s.pid == int(parts[0])), None)
            if sim is None:
                return None
            return _DIR if len(parts) == 1 else self._of_process(sim, parts[1])
        text = self._global("/".join(parts))
        if text is not None:
            return text_node(text)
        return _DIR if any(name.startswith("/".join(parts) + "/") for name in self._names()) else None

    def list(self, path: str) -> list[str]:
        parts = path.strip("/").split("/")[1:]
        if not parts:
            return [str(sim.pid) for sim in processes.seen(self.world, self.host)] + sorted(
                {n.split("/")[0] for n in self._names()}
            )
        if parts[0].isdigit():
            return ["cgroup", "cmdline", "comm", "environ", "io", "stat", "status"]
        start = "/".join(parts) + "/"
        return sorted({n[len(start) :].split("/")[0] for n in self._names() if n.startswith(start)})

    def write(self, path: str, data: bytes) -> None:
        raise error(errno.EACCES, path)

    def _of_process(self, sim: SimProcess, name: str) -> Node | None:
        ticks = int((sim.started - self.machine.booted) * 100)
        words = [sim.title] if sim.title else sim.argv
        moved = int((self.world.now() - sim.started) * 1e6)
        tail = " ".join(["0"] * 30)
        texts: dict[str, Callable[[], str]] = {
            "comm": lambda: comm(sim) + "\n",
            "cmdline": lambda: "".join(f"{w}\0" for w in words) if sim.argv and not sim.argv[0].startswith("[") else "",
            "cgroup": lambda: f"0::{sim.cgroup}\n",
            "environ": lambda: "".join(f"{k}={v}\0" for k, v in sim.env.items()),
            "io": lambda: f"rchar: {moved}\nwchar: {moved}\nread_bytes: {moved}\nwrite_bytes: 4096\n",
            "status": lambda: f"Name:\t{comm(sim)}\nState:\t{sim.state}\nPid:\t{sim.pid}\nPPid:\t{sim.ppid}\n",
            "stat": lambda: (
                f"{sim.pid} ({comm(sim)}) {sim.state} {sim.ppid} {sim.pgid} {sim.sid} 0 -1 4194560 100 0 0 0 10 5 0 0 "
                f"20 0 1 0 {ticks} {sim.rss_mib << 20} {sim.rss_mib * 256} {tail}\n"
            ),
        }
        made = texts.get(name)
        return text_node(made()) if made else None

    def _names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = (
            "cmdline", "cpuinfo", "devices", "loadavg", "meminfo", "modules", "mounts", "stat", "uptime", "version",
            "sys/kernel/random/boot_id", "sys/kernel/hostname", "sys/kernel/osrelease",
        )  # fmt: skip
        return (*names, "driver/nvidia/version") if self.machine.driver.loaded else names

    def _global(self, name: str) -> str | None:
        host, machine, now = self.host, self.machine, self.world.now()
        up = now - (host.booted or machine.booted)
        kib = host.memory_mib * 1024
        made: dict[str, Callable[[], str]] = {
            "cmdline": lambda: (
                str(machine.extras.get("cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/mapper/pve-root ro quiet")) + "\n"
            ),
            "cpuinfo": lambda: "".join(
                f"processor\t: {i}\nmodel name\t: {host.cpu_model}\n\n" for i in range(host.cpus)
            ),
            "devices": lambda: (
                "Character devices:\n  1 mem\n"
                + (f"195 nvidia\n{machine.uvm_major} nvidia-uvm\n" if machine.driver.loaded else "")
            ),
            "loadavg": lambda: "0.42 0.30 0.21 1/812 4711\n",
            "meminfo": lambda: (
                f"MemTotal:       {kib} kB\nMemFree:        {kib // 2} kB\nMemAvailable:   {kib * 3 // 4} kB\n"
            ),
            "modules": lambda: "".join(f"{m} 65536 0 - Live 0x0000000000000000\n" for m in machine.modules),
            "mounts": lambda: "".join(f"{d.device} {d.mount} {d.fstype} rw,relatime 0 0\n" for d in host.disks),
            "stat": lambda: f"cpu  1 0 1 1 0 0 0 0 0 0\nbtime {int(machine.booted)}\nprocesses 4711\n",
            "uptime": lambda: f"{up:.2f} {up * 20:.2f}\n",
            "version": lambda: f"Linux version {machine.kernel} (build@proxmox) #1 SMP PREEMPT_DYNAMIC\n",
            "sys/kernel/random/boot_id": lambda: machine.boot_id + "\n",
            "sys/kernel/hostname": lambda: host.hostname + "\n",
            "sys/kernel/osrelease": lambda: machine.kernel + "\n",
            "driver/nvidia/version": lambda: _driver(machine),
        }
        if name == "driver/nvidia/version" and not machine.driver.loaded:
            return None
        return made[name]() if name in made else None


def _driver(machine: SimHost) -> str:
    kind = " Open Kernel Module for x86_64" if machine.driver.flavour == "open" else " x86_64 Kernel Module"
    return (
        f"NVRM version: NVIDIA UNIX{kind}  {machine.driver.loaded}  Release Build  (dvs-builder@U22-I3-AE18-23-3)  "
        "Mon Jan 12 10:00:00 UTC 2026\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )


class Sys:
    """sysfs: PCI devices and drivers, as far as binding a card needs them."""

    def __init__(self, world: World, host: SimHost) -> None:
        self.world, self.host = world, host
        self.machine = world.machine(host)

    def _device(self, address: str) -> PciDevice | None:
        return next((d for d in self.machine.pci if d.address == address), None)

    def get(self, path: str) -> Node | None:
        parts = path.strip("/").split("/")[1:]
        if parts[:3] == ["bus", "pci", "devices"] and len(parts) >= 4:
            device = self._device(parts[3])
            if device is None:
                return None
            return _DIR if len(parts) == 4 else self._attribute(device, parts[4]) if len(parts) == 5 else None
        if parts[:3] == ["bus", "pci", "drivers"] and len(parts) == 5:
            return text_node("", 0o200)
        if parts == ["bus", "pci", "drivers_probe"]:
            return text_node("", 0o200)
        known = (["bus"], ["bus", "pci"], ["bus", "pci", "devices"], ["bus", "pci", "drivers"])
        if parts in ([], *known) or (parts[:3] == ["bus", "pci", "drivers"] and len(parts) == 4):
            return _DIR
        return None

    def _attribute(self, device: PciDevice, name: str) -> Node | None:
        texts = {
            "vendor": f"0x{device.vendor.removeprefix('0x')}\n",
            "device": f"0x{device.device.removeprefix('0x')}\n",
            "class": f"{device.class_id}\n",
            "driver_override": f"{device.override or '(null)'}\n",
        }
        if name in texts:
            return text_node(texts[name], 0o644)
        if name == "driver" and device.driver:
            return Node("link", 0o777, target=f"/sys/bus/pci/drivers/{device.driver}")
        if name == "iommu_group":
            return Node("link", 0o777, target=f"/sys/kernel/iommu_groups/{device.iommu_group}")
        return None

    def list(self, path: str) -> list[str]:
        parts = path.strip("/").split("/")[1:]
        if parts == ["bus", "pci", "devices"]:
            return [d.address for d in self.machine.pci]
        if parts == ["bus", "pci", "drivers"]:
            return sorted({"nvidia", "vfio-pci", *(d.driver for d in self.machine.pci if d.driver)})
        if parts[:3] == ["bus", "pci", "drivers"]:
            return ["bind", "new_id", "remove_id", "unbind"]
        if parts[:3] == ["bus", "pci", "devices"]:
            return ["class", "device", "driver_override", "iommu_group", "vendor"]
        return {0: ["bus"], 1: ["pci"], 2: ["devices", "drivers", "drivers_probe"]}.get(len(parts), [])

    def write(self, path: str, data: bytes) -> None:
        if self.host.parent:
            raise error(errno.EROFS, path)
        parts, value = path.strip("/").split("/")[1:], data.decode().strip()
        if parts[:3] == ["bus", "pci", "devices"] and parts[4:] == ["driver_override"]:
            device = self._device(parts[3])
            if device is None:
                raise error(errno.ENOENT, path)
            device.override = value
            return
        if parts[:3] == ["bus", "pci", "drivers"] and parts[4:] in (["bind"], ["unbind"]):
            self._bind(parts[3], parts[4], value, path)
            return
        if parts == ["bus", "pci", "drivers_probe"]:
            device = self._device(value)
            if device is None:
                raise error(errno.EINVAL, path)
            if not device.driver:
                device.driver = device.override or ("nvidia" if "nvidia" in self.machine.modules else "")
            return
        if parts[4:] in (["new_id"], ["remove_id"]):
            return
        raise error(errno.EACCES, path)

    def _bind(self, driver: str, what: str, address: str, path: str) -> None:
        device = self._device(address)
        if device is None or (what == "unbind") != (device.driver == driver):
            raise error(errno.ENODEV, path)
        device.driver = "" if what == "unbind" else driver
