"""Machines and containers as wholes: shutting down, starting, rebooting; what passes into a container."""

from __future__ import annotations

import re
import threading
import uuid
from typing import TYPE_CHECKING

from opsagent_lab import modules, units
from opsagent_lab.program import SIGKILL, Process
from opsagent_lab.state import Node, SimHost

if TYPE_CHECKING:
    from opsagent_lab.world import World

_DOWN_SECONDS = 75.0
_DEV = re.compile(r"dev\d+: (/dev/[\w-]+)(?:,.*)?$")
_ENTRY = re.compile(r"lxc\.mount\.entry: (/dev/[\w-]+) ")
_ALLOW = re.compile(r"lxc\.cgroup2?\.devices\.allow: c (\d+):")


def add_init(world: World, host: SimHost) -> None:
    """Process 1."""
    if 1 not in host.processes:
        name = "/sbin/init" if host.systemd else "sleep"
        env = {"container": "lxc"} if host.parent else {}
        title = "systemd" if host.systemd else ""
        world.add_process(host, [name], pid=1, ppid=0, title=title, cgroup="/init.scope", env=env, cwd="/")


def stop_host(world: World, host: SimHost) -> None:
    """Everything that runs ends; the SSH port closes."""
    for pid in list(host.processes):
        if not world.signal(host, pid, SIGKILL) or (pid in host.processes and (host.name, pid) not in world.running):
            world.end_process(host, pid)
    for unit in list(host.units.values()):
        if unit.transient:
            host.units.pop(unit.name, None)
        else:
            unit.active, unit.sub, unit.main_pid = "inactive", "dead", 0
    host.on = False
    world.cut_links(host)
    world.power(host, False)


def start_host(world: World, host: SimHost) -> None:
    """Boot: modules, device nodes, enabled units; containers with `onboot: 1` follow."""
    host.boot_id, host.booted, host.on = str(uuid.UUID(int=world.random.getrandbits(128))), world.now(), True
    host.dmesg.clear()
    if not host.parent:
        host.uvm_major = 500 + (host.uvm_major + 4) % 11
        modules.boot(world, host)
    else:
        pass_devices(world, host)
    add_init(world, host)
    for unit in list(host.units.values()):
        if unit.enabled and unit.argv:
            units.start(world, host, unit)
    world.power(host, True)
    for child in world.containers(host):
        if "onboot: 1" in config_of(world, child):
            start_host(world, child)


def reboot(process: Process) -> int:
    """Return at once; the machine goes down, and comes back after a minute or so."""
    world, host = process.world, process.host
    world.count(host, "reboots")
    host.extras["rebooting"] = True
    go_down_and_up(world, host)
    return 0


def power_off(process: Process) -> int:
    """The machine goes down and stays down: in the lab nobody can press its button."""
    world, host = process.world, process.host
    world.count(host, "power_offs")

    def body() -> None:
        _pause(world, 2.0)
        for child in [*world.containers(host), host]:
            stop_host(world, child)

    threading.Thread(target=body, name=f"{host.name}: poweroff", daemon=True).start()
    return 0


def go_down_and_up(world: World, host: SimHost) -> None:
    """The part of a reboot that happens by itself; a lab that was saved in between goes on with it."""

    def body() -> None:
        _pause(world, 2.0)
        for child in world.containers(host):
            stop_host(world, child)
        stop_host(world, host)
        _pause(world, _DOWN_SECONDS)
        if not world.closing:
            host.extras.pop("rebooting", None)
            start_host(world, host)

    threading.Thread(target=body, name=f"{host.name}: reboot", daemon=True).start()


def _pause(world: World, seconds: float) -> None:
    threading.Event().wait(world.clock.real(seconds))


def config_path(host: SimHost) -> str:
    return f"/etc/pve/lxc/{host.ctid}.conf"


def config_of(world: World, host: SimHost) -> list[str]:
    """Lines of a container's configuration."""
    node = world.machine(host).nodes.get(config_path(host))
    return node.data.decode().splitlines() if node else []


def pass_devices(world: World, host: SimHost) -> str:
    """Device nodes that the configuration passes in; returns what is missing on the machine ('' when all is there)."""
    machine, lines = world.machine(host), config_of(world, host)
    for path in [p for p, n in host.nodes.items() if n.kind == "char" and p.startswith("/dev/nvidia")]:
        del host.nodes[path]
    host.devices = {}
    allowed = {int(m.group(1)) for line in lines if (m := _ALLOW.match(line))}
    for line in lines:
        device, entry = _DEV.match(line), _ENTRY.match(line)
        found = device or entry
        if found is None:
            continue
        path = found.group(1)
        node = machine.nodes.get(path)
        if node is None or node.kind != "char":
            if device:
                return path
            continue
        world.files(host).put(path, Node("char", 0o666, device=node.device))
        host.devices[path] = "ok" if device or node.device[0] in allowed else "denied"
    return ""
