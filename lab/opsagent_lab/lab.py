"""A running lab: a scenario's world behind its SSH server, and what a client needs to reach it."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsagent_lab import build, facts, oracle, saving
from opsagent_lab.approver import ScenarioApprover
from opsagent_lab.faults import Faults
from opsagent_lab.scenario import Scenario, ScenarioError, load
from opsagent_lab.server import LabServer
from opsagent_lab.state import SimHost
from opsagent_lab.world import World

_READY_SECONDS = 30.0


@dataclass
class Lab:
    """Close it when you are done: its threads and its folder go."""

    scenario: Scenario
    world: World
    server: LabServer
    folder: Path
    approver: ScenarioApprover
    faults: Faults
    state: Path | None = None
    """Where the world is saved after each command; None: nowhere."""
    closed: bool = field(default=False)
    saving: threading.Lock = field(default_factory=threading.Lock)
    """One writer at a time: commands end in threads of their own."""

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def roles(self) -> dict[str, str]:
        """Role → host."""
        return self.scenario.roles

    @property
    def params(self) -> dict[str, Any]:
        return self.scenario.params

    @property
    def speed(self) -> float:
        """Simulated seconds in a real one."""
        return self.world.clock.speed

    def hosts(self) -> dict[str, dict[str, Any]]:
        """Host → its table of a hosts.toml."""
        out: dict[str, dict[str, Any]] = {}
        for name, machine in self.scenario.hosts.items():
            if machine.ssh:
                out[name] = {
                    "address": "127.0.0.1", "port": self.server.relays[name].port, "user": "root",
                    "identity": str(self.server.identity), "known_hosts": str(self.server.known_hosts),
                    "ssh_config": "none", "label": f"SIMULATED: lab {self.name}",
                }  # fmt: skip
            else:
                out[name] = {"via": machine.parent, "pct": machine.ctid, "label": f"SIMULATED: lab {self.name}"}
        return out

    def oracle(self, report: dict[str, Any] | None = None) -> list[str]:
        """What is not as the scenario's oracle wants it; empty when all is well."""
        return oracle.check(self.world, self.scenario.oracle, report)

    def oracle_facts(self) -> dict[str, Any]:
        """What the oracle's expressions see as `hosts`."""
        return facts.hosts(self.world)

    def snapshot(self) -> dict[str, Any]:
        """The hosts' state without times, pids and run ids: equal for runs that did the same."""
        return facts.snapshot(self.world)

    def save(self) -> None:
        """Write the world to the state file, if there is one."""
        if self.state is not None and not self.closed:
            try:
                with self.saving:
                    saving.save(self.world, self.scenario.name, self.state)
            except OSError as problem:  # a full disk must not hang the command that was just answered
                self.world.bugs.append(f"the lab cannot be saved: {problem}")

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save (with a state file), end every thread, remove the folder."""
        if self.closed:
            return
        self.save()
        self.closed = True
        self.world.closing = True
        with self.world.lock:
            for process in list(self.world.running.values()):
                process.pending.append(9)
                process.woken.set()
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def open_lab(name: str, *, state: Path | None = None, speed: float | None = None) -> Lab:
    """Start a scenario. `speed` overrides the scenario's.

    With `state` the world is saved there after each command, and restored from there when the file exists.
    Raises ScenarioError for a scenario or a state file that is not there or not right.
    """
    scenario = load(name)
    world = build.build(scenario, speed or scenario.speed, populate=state is None or not state.exists())
    saved: saving.Saved | None = None
    if state is not None and state.exists():
        try:
            saved = saving.load(state, scenario.name)
        except saving.CannotRestore as problem:
            raise ScenarioError(str(problem)) from problem
        saving.restore(world, saved)
    folder = Path(tempfile.mkdtemp(prefix="opsagent-lab-"))
    faults = Faults()
    for fault in scenario.faults:
        faults.add(fault)
    own = [host for host, machine in scenario.hosts.items() if machine.ssh]
    server = LabServer(world, folder, own, faults)
    server.start()

    def power(host: SimHost, up: bool) -> None:
        server.set_up(host.name, up)

    world.power = power
    lab = Lab(scenario, world, server, folder, ScenarioApprover(list(scenario.approver)), faults, state)
    server.after_command = lab.save
    try:
        _settle(lab)
        if saved is None:
            for host in world.hosts.values():  # what the scenario itself did on the way to its beginning does not count
                host.counters.clear()
    except BaseException:
        lab.close()
        raise
    return lab


def _settle(lab: Lab) -> None:
    """Wait until the servers that are said to be up listen."""
    until = time.monotonic() + _READY_SECONDS
    for host in lab.world.hosts.values():
        for sim in list(host.processes.values()):
            if not sim.memo.get("spawned") or not (sim.memo.get("preloaded") or sim.memo.get("serving")):
                continue
            while not any(x.host == host.name and x.pid == sim.pid for x in list(lab.world.listeners)):
                if time.monotonic() > until or lab.world.bugs:
                    log = lab.world.files(host).text(sim.log)[-1500:]
                    raise ScenarioError(
                        f"{lab.name}: the server on {host.name} does not come up: {lab.world.bugs}{log}"
                    )
                threading.Event().wait(0.02)
