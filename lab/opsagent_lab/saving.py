"""A world as a file, and back: what a run needs to be taken up again after the program that held its lab was killed.

Threads cannot be saved. A background process goes on from what it keeps in `SimProcess.memo` (a server serves again, a
download or an installer starts afresh); a command that was running in the foreground is gone, as after a lost link.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opsagent_lab import machines, units
from opsagent_lab.clock import LabClock
from opsagent_lab.network import Listener
from opsagent_lab.processes import end
from opsagent_lab.state import SimHost, SimProcess
from opsagent_lab.world import World

VERSION = 1


@dataclass
class Saved:
    """The file's content. `now` is the simulated moment at which it was written."""

    scenario: str
    now: float
    hosts: dict[str, SimHost]
    settings: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)
    random: list[Any] = field(default_factory=list)
    seed: int = 0
    version: int = VERSION


class CannotRestore(ValueError):
    """The file is not a saved lab, or one of another version."""


_ADAPTER: TypeAdapter[Saved] = TypeAdapter(Saved)


def save(world: World, scenario: str, path: Path) -> None:
    """Write the world to `path`: the old file or the new one is there, never a half."""
    with world.lock:
        kind, numbers, gauss = world.random.getstate()
        state = [kind, list(numbers), gauss]
        saved = Saved(scenario, world.now(), world.hosts, world.settings, world.extras, state, world.seed)
        text = _ADAPTER.dump_json(saved)
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(text)
    fresh.replace(path)


def load(path: Path, scenario: str) -> Saved:
    """Raises CannotRestore."""
    try:
        raw = json.loads(path.read_bytes())
        if not isinstance(raw, dict) or raw.get("version") != VERSION:
            raise CannotRestore(f"{path}: not a saved lab of version {VERSION}")
        saved = _ADAPTER.validate_json(path.read_bytes())
    except (OSError, ValidationError, json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise CannotRestore(f"{path}: not a saved lab: {str(problem).splitlines()[0]}") from problem
    if saved.scenario != scenario:
        raise CannotRestore(f"{path}: a lab of the scenario {saved.scenario!r}, not {scenario!r}")
    return saved


def restore(world: World, saved: Saved) -> None:
    """Put the saved state into a world that has not been served yet, and set going what was going."""
    world.hosts, world.settings, world.extras = saved.hosts, saved.settings, saved.extras
    world.clock = LabClock(world.clock.speed, saved.now)
    if saved.random:
        kind, numbers, gauss = saved.random
        world.random.setstate((kind, tuple(numbers), gauss))
    for host in world.hosts.values():
        for sim in sorted(host.processes.values(), key=lambda p: p.pid):
            _revive(world, host, sim)
    for host in world.hosts.values():
        if host.parent:
            continue
        if host.extras.get("rebooting"):
            machines.go_down_and_up(world, host)


def _revive(world: World, host: SimHost, sim: SimProcess) -> None:
    if not host.on or (sim.program and not sim.memo.get("spawned")) or sim.memo.get("login"):
        end(world, host, sim.pid)
        return
    ports, sim.ports = list(sim.ports), []
    if not sim.memo.get("spawned"):
        for address, port in ports:
            world.listen(Listener(host.name, address, port, sim.pid))
        return
    unit = host.units.get(sim.unit)
    done = None
    if unit is not None and unit.main_pid == sim.pid:

        def ended(gone: SimProcess, code: int, name: str = sim.unit) -> None:
            units.ended(world, host, name, gone, code)

        done = ended
    world.spawn(host, sim.argv, sim=sim, done=done)
