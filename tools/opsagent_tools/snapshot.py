"""A picture of a host that can be compared with a later one: what changed is computed, not told.

Taken before the first and after the last effect of a run. Reads only, about a dozen small commands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host, argv
from opsagent_tools.machine.containers import read_containers
from opsagent_tools.machine.gpus import read_gpus
from opsagent_tools.machine.network import listeners
from opsagent_tools.machine.processes import read_processes
from opsagent_tools.machine.servers import read_servers
from opsagent_tools.machine.venvs import read_venvs

FOLDERS = ("/etc/modprobe.d", "/etc/modules-load.d", "/etc/pve/lxc", "/etc/systemd/system")
FILES = ("/etc/default/grub", "/etc/kernel/cmdline", "/etc/modules")


def snapshot(host: Host, roots: Sequence[str] = ()) -> dict[str, Any]:
    """Facts as nested dicts with plain leaves, so that two of them can be compared leaf by leaf.

    `roots`: folders whose direct entries are listed as well (models, logs). Keys: `boot id`, `driver`, `gpus` (driver by
    address), `gpu memory` (held or free, by number), `servers` (by port), `ports`, `environments` (by path), `containers`
    (state by number), `configuration` (sha256 by path), `folders` (entries by path). Raises HostError.
    """
    driver, cards = read_gpus(host)
    ports = _ports(host)
    servers, orphans = read_servers(host, read_processes(host), ports)
    boot = argv(host, "cat", "/proc/sys/kernel/random/boot_id", timeout_s=20)
    return {
        "boot id": boot.stdout.strip() if boot.ok else None,
        "driver": driver.version or driver.module or driver.state,
        "gpus": {card.pci: card.driver for card in cards},
        "gpu memory": {str(card.index): _held(card.memory_used_mib) for card in cards if card.index is not None},
        "servers": {f"port {server.port}": f"{server.engine} {server.model or ''}".strip() for server in servers},
        "orphaned workers": orphans,
        "ports": sorted({one.port for one in ports}),
        "environments": {venv.path: _packages(venv.model_dump()) for venv in read_venvs(host, [], deep=False)},
        "containers": {str(one.ctid): one.status for one in read_containers(host)},
        "configuration": _hashes(host),
        "folders": {root: entries for root in roots if (entries := _entries(host, root)) is not None},
    }


def _ports(host: Host) -> list[Any]:
    try:
        return listeners(host)
    except ToolFailed:
        return []


def _held(used_mib: int | None) -> str | None:
    """An idle card shows a few MiB."""
    return None if used_mib is None else ("free" if used_mib < 600 else "in use")


def _packages(venv: dict[str, Any]) -> str:
    names = ("sglang", "torch", "vllm", "transformers")
    return ", ".join(f"{name} {venv[name]}" for name in names if venv.get(name)) or "empty"


def _entries(host: Host, folder: str) -> list[str] | None:
    done = argv(host, "ls", "-A", folder, timeout_s=20)
    return sorted(name for name in done.stdout.splitlines() if name)[:500] if done.ok else None


def _hashes(host: Host) -> dict[str, str]:
    """sha256 of every configuration file of boot, drivers, containers and units."""
    paths = list(FILES)
    for folder in FOLDERS:
        paths += [f"{folder}/{name}" for name in _entries(host, folder) or [] if re.search(r"\.(conf|service)$", name)]
    done = argv(host, "sha256sum", "--", *paths, timeout_s=60, keep=1 << 20)
    rows = (re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line) for line in done.stdout.splitlines())
    return {row[2]: row[1] for row in rows if row}
