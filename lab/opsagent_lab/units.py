"""systemd units of a host: starting, ending, stopping; what `systemctl show` tells afterwards."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from opsagent_lab.program import SIGKILL, SIGTERM
from opsagent_lab.state import Node, SimHost, SimProcess, Unit

if TYPE_CHECKING:
    from opsagent_lab.world import World


def name_of(text: str) -> str:
    return text if text.endswith((".service", ".scope", ".timer", ".target")) else f"{text}.service"


def members(host: SimHost, unit: Unit) -> list[SimProcess]:
    return [p for p in list(host.processes.values()) if p.unit == unit.name]


def output_of(unit: Unit) -> str:
    """Path that StandardOutput appends to; '' is the journal."""
    kind, _, path = unit.properties.get("StandardOutput", "").partition(":")
    return path if kind in ("append", "file", "truncate") else ""


def start(world: World, host: SimHost, unit: Unit) -> SimProcess:
    """Run the unit's command in the background."""
    log = output_of(unit)
    files = world.files(host)
    if log:
        files.mkdir(posixpath.dirname(log), parents=True)
        if not files.exists(log):
            files.put(log, Node())
    with world.lock:  # a command may end before its pid is noted here, and `ended` must find it
        sim = world.spawn(
            host, list(unit.argv), env=dict(unit.env), done=lambda s, code: ended(world, host, unit.name, s, code),
            unit=unit.name,
            cgroup=f"/system.slice/{unit.name}", cwd=unit.cwd, log=log, ppid=1,
        )  # fmt: skip
        unit.active, unit.sub, unit.result = "active", "running", "success"
        unit.main_pid = unit.exec_main_pid = sim.pid
        unit.exec_main_code = unit.exec_main_status = 0
        unit.started, unit.stop_requested = world.now(), False
    world.log(host, "systemd", f"Started {unit.name} - {unit.description or ' '.join(unit.argv)}.", unit=unit.name)
    return sim


def ended(world: World, host: SimHost, name: str, sim: SimProcess, code: int) -> None:
    """The main process ended: the rest of the cgroup goes, and the unit keeps how it was."""
    with world.lock:
        unit = host.units.get(name)
        if unit is None or unit.exec_main_pid != sim.pid:
            return
    for child in members(host, unit):
        world.signal(host, child.pid, SIGKILL)
    killed = code > 128
    unit.main_pid, unit.ended = 0, world.now()
    unit.exec_main_code, unit.exec_main_status = (2, code - 128) if killed else (1, code)
    clean = code == 0 or (killed and unit.stop_requested and code - 128 in (SIGTERM, 2, 1))
    if clean and unit.properties.get("RemainAfterExit") == "yes" and not unit.stop_requested:
        unit.active, unit.sub = "active", "exited"
    elif clean:
        unit.active, unit.sub = "inactive", "dead"
        _unload(host, unit)
    else:
        unit.active, unit.sub, unit.result = "failed", "failed", "signal" if killed else "exit-code"
        world.log(host, "systemd", f"{name}: Failed with result '{unit.result}'.", unit=name)
        if unit.properties.get("Restart") in ("always", "on-failure") and not unit.stop_requested and not world.closing:
            unit.restarts += 1
            start(world, host, unit)


def _unload(host: SimHost, unit: Unit) -> None:
    """A transient unit that ended well is forgotten."""
    if unit.transient:
        host.units.pop(unit.name, None)


def stop(world: World, host: SimHost, unit: Unit) -> None:
    """Ask the processes to end (SIGTERM to all); a unit that is only remembered is let go."""
    unit.stop_requested = True
    alive = members(host, unit)
    if not alive:
        if unit.active == "active":
            unit.active, unit.sub = "inactive", "dead"
            _unload(host, unit)
        return
    unit.active, unit.sub = "deactivating", "stop-sigterm"
    for sim in alive:
        world.signal(host, sim.pid, SIGTERM)


def kill_all(world: World, host: SimHost, unit: Unit) -> None:
    for sim in members(host, unit):
        world.signal(host, sim.pid, SIGKILL)
