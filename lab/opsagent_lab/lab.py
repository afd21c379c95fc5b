"""A running lab: a scenario's world behind its SSH server, and what a client needs to reach it."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsagent_lab import build
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
    closed: bool = field(default=False)

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
                    "ssh_config": "none",
                }  # fmt: skip
            else:
                out[name] = {"via": machine.parent, "pct": machine.ctid}
        return out

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.world.closing = True
        with self.world.lock:
            for process in list(self.world.running.values()):
                process.pending.append(9)
                process.woken.set()
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def open_lab(name: str, *, state: Path | None = None, speed: float | None = None) -> Lab:
    """Start a scenario. `speed` overrides the scenario's. Raises ScenarioError for one that is not there or not right.

    `state` would restore an earlier world; this lab keeps none, so a run on it cannot be taken up again.
    """
    if state is not None:
        raise ScenarioError("a lab's world ends with the run that it was opened for: start the run anew")
    scenario = load(name)
    world = build.build(scenario, speed or scenario.speed)
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
    lab = Lab(scenario, world, server, folder, ScenarioApprover(list(scenario.approver)), faults)
    try:
        _settle(lab)
    except BaseException:
        lab.close()
        raise
    return lab


def _settle(lab: Lab) -> None:
    """Wait until the servers that are said to be up listen."""
    until = time.monotonic() + _READY_SECONDS
    for name, machine in lab.scenario.hosts.items():
        for server in machine.servers:
            port = int(server.argv[server.argv.index("--port") + 1]) if "--port" in server.argv else 30000
            while not any(x.host == name and x.port == port for x in list(lab.world.listeners)):
                if time.monotonic() > until or lab.world.bugs:
                    log = lab.world.files(lab.world.host(name)).text(server.log)[-1500:]
                    raise ScenarioError(f"{lab.name}: the server on {name} does not come up: {lab.world.bugs}{log}")
                threading.Event().wait(0.02)
