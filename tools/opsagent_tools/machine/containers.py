"""Containers of a Proxmox host, and the virtual machines that could take its cards away."""

from __future__ import annotations

import re

from pydantic import BaseModel

from opsagent_tools.host import Host, argv


class Container(BaseModel):
    """One container (`pct`). `devices`: device nodes that its configuration passes in, by either of the two ways."""

    ctid: int
    name: str
    status: str
    lock: str = ""
    devices: list[str] = []
    memory_mib: int | None = None
    cores: int | None = None
    unprivileged: bool = False
    onboot: bool = False
    mounts: list[str] = []
    config: list[str] = []
    """The configuration's lines as `pct config` prints them."""


def read_containers(host: Host) -> list[Container]:
    """All containers; [] on a machine that is no Proxmox host."""
    done = argv(host, "pct", "list", timeout_s=60)
    found = parse_list(done.stdout) if done.ok else []
    for container in found:
        config = argv(host, "pct", "config", str(container.ctid), timeout_s=60)
        if config.ok:
            apply_config(container, config.stdout)
    return found


def parse_list(text: str) -> list[Container]:
    """`pct list`: VMID, Status, Lock (often empty), Name in fixed columns; nothing at all when there is no container."""
    found = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) >= 2 and re.fullmatch(r"[0-9]+", words[0]):
            lock = line[22:35].strip() if len(words) > 3 else ""
            found.append(
                Container(ctid=int(words[0]), status=words[1], lock=lock, name=words[-1] if len(words) > 2 else "")
            )
    return found


def apply_config(container: Container, text: str) -> None:
    """`pct config CT`: `key: value` lines, sorted, raw `lxc.*` lines last."""
    container.config = [line for line in text.splitlines() if line.strip() and not line.startswith("description:")]
    for line in container.config:
        key, _, value = line.partition(": ")
        if key == "memory" and value.isdigit():
            container.memory_mib = int(value)
        elif key == "cores" and value.isdigit():
            container.cores = int(value)
        elif key in ("unprivileged", "onboot"):
            setattr(container, key, value.strip() == "1")
        elif key == "lock":
            container.lock = value.strip()
        elif re.fullmatch(r"mp\d+|rootfs", key):
            container.mounts.append(value)
        elif re.fullmatch(r"dev\d+", key):
            container.devices.append(value.split(",")[0].removeprefix("path="))
        elif key == "lxc.mount.entry" and value.startswith("/dev/"):
            container.devices.append(value.split()[0])


def read_passthrough(host: Host) -> list[str]:
    """`hostpci` lines of virtual machines, `101.conf: hostpci0: 0000:41:00`: starting one takes the card from its driver."""
    listed = argv(host, "ls", "/etc/pve/qemu-server", timeout_s=20)
    names = [name for name in listed.stdout.split() if re.fullmatch(r"\d+\.conf", name)] if listed.ok else []
    lines = []
    for name in names:
        config = argv(host, "cat", f"/etc/pve/qemu-server/{name}", timeout_s=20)
        lines += [f"{name}: {line.strip()}" for line in config.stdout.splitlines() if line.startswith("hostpci")]
    return lines
