"""Kernel modules, cards and device nodes of a machine: loading nvidia, what boot makes of the modprobe configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from opsagent_lab.state import Node, SimHost

if TYPE_CHECKING:
    from opsagent_lab.world import World


def modprobe_files(host: SimHost) -> dict[str, str]:
    """The files of /etc/modprobe.d as they are now."""
    return {
        path: node.data.decode("utf-8", "replace")
        for path, node in sorted(host.nodes.items())
        if path.startswith("/etc/modprobe.d/") and path.endswith(".conf") and node.kind == "file"
    }


def _lines(files: dict[str, str]) -> list[str]:
    return [line.strip() for text in files.values() for line in text.splitlines() if line.strip()[:1] not in ("", "#")]


def vfio_ids(files: dict[str, str], cmdline: str = "") -> set[str]:
    """`10de:2230` … that vfio-pci claims at boot."""
    found = [line for line in _lines(files) if line.startswith("options vfio-pci")]
    found += [word for word in cmdline.split() if word.startswith("vfio-pci.ids=")]
    return {one.lower() for line in found for one in re.findall(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{4}", line)}


def blacklisted(files: dict[str, str], module: str) -> bool:
    return f"blacklist {module}" in _lines(files)


def load_nvidia(world: World, host: SimHost) -> bool:
    """modprobe nvidia: takes the cards that nobody else holds; False (and a kernel message) when there is none."""
    cards = [d for d in host.pci if d.address in {g.pci for g in host.gpus}]
    free = [d for d in cards if not d.driver and d.override in ("", "nvidia")]
    held = [d for d in cards if d.driver and d.driver != "nvidia"]
    if held:
        for text in (
            f"NVRM: The NVIDIA probe routine was not called for {len(held)} device(s).",
            "NVRM: This can occur when another driver was loaded and ",
            "NVRM: obtained ownership of the NVIDIA device(s).",
            "NVRM: Try unloading the conflicting kernel module (and/or",
            "NVRM: reconfigure your kernel without the conflicting",
            "NVRM: driver(s)), then try loading the NVIDIA kernel module",
            "NVRM: again.",
        ):
            world.kernel(host, text)
    for device in free:
        device.driver = "nvidia"
    if not any(d.driver == "nvidia" for d in cards):
        world.kernel(host, "NVRM: No NVIDIA devices probed." if held else "NVRM: No NVIDIA GPU found.")
        return False
    host.driver.loaded = host.driver.module
    for name in ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"):
        if name not in host.modules:
            host.modules.append(name)
    world.kernel(host, f"NVRM: loading NVIDIA UNIX Kernel Module  {host.driver.loaded}")
    return True


def make_nodes(world: World, host: SimHost, *, uvm: bool = True) -> None:
    """The device nodes of the cards that the driver holds (nvidia-modprobe, or nvidia-smi run by root)."""
    if not host.driver.loaded or host.parent:
        return
    files = world.files(host)
    count = sum(1 for d in host.pci if d.driver == "nvidia" and d.address in {g.pci for g in host.gpus})
    wanted = {f"/dev/nvidia{i}": (195, i) for i in range(count)} | {"/dev/nvidiactl": (195, 255)}
    if uvm:
        wanted |= {"/dev/nvidia-uvm": (host.uvm_major, 0), "/dev/nvidia-uvm-tools": (host.uvm_major, 1)}
    for path, device in wanted.items():
        node = files.find(path)
        if node is None or node.device != device:
            files.put(path, Node("char", 0o666, device=device))


def boot(world: World, host: SimHost) -> None:
    """What the kernel and the initramfs make of the machine at start: who gets the cards."""
    files = host.initramfs or modprobe_files(host)
    ids = vfio_ids(files, str(host.extras.get("cmdline", "")))
    host.modules, host.driver.loaded = [], ""
    for path in [p for p, n in host.nodes.items() if p.startswith("/dev/nvidia") and n.kind == "char"]:
        del host.nodes[path]
    for device in host.pci:
        known = f"{device.vendor.removeprefix('0x')}:{device.device.removeprefix('0x')}".lower()
        device.override, device.driver = "", "vfio-pci" if known in ids else ""
    if ids:
        host.modules.append("vfio_pci")
    if host.driver.module and not blacklisted(files, "nvidia") and load_nvidia(world, host):
        make_nodes(world, host)
    for device in host.pci:
        if not device.driver and device.modules:
            plain = [m for m in device.modules if m not in ("nouveau", "nvidiafb", "nvidia", "nvidia_drm")]
            device.driver = plain[0] if plain else ""
