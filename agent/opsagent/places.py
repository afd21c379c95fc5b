"""Where the roles of a run are: configured hosts, or the lab's simulated ones.

With neither `--host` nor `--hosts` a run goes to the lab, unless a hosts.toml lies in the folder: then it asks for the
missing role, because a person with hosts wants to know that one is missing, not a simulation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsagent import xdg
from opsagent.runbook.model import Runbook
from opsagent.runbook.params import parse_assignments
from opsagent_tools.errors import InputError, suggest
from opsagent_tools.host import Host
from opsagent_tools.hosts.inventory import HostEntry, Inventory, load_inventory, open_host

SCENARIOS = {
    "migrate": "story",
    "launch": "hybrid",
    "diagnose": "takeover",
    "decommission": "decommission",
    "upgrade": "upgrade",
}
"""Scenario of a runbook when none is named; `story` for any other."""


@dataclass
class Places:
    """The hosts of a run by role, connected on first use."""

    roles: dict[str, str]
    """Role → host name; '' for an optional role that stays empty."""
    inventory: Inventory
    params: dict[str, Any] = field(default_factory=dict)
    """Parameters that the place brings along (a scenario's), below what was given with `-p`."""
    simulated: bool = False
    lab_name: str = ""
    speed: float = 1.0
    approver: Any = None
    """The scenario's approver; None on real hosts."""
    inventory_path: str = ""
    lab: Any = None
    closers: list[Callable[[], None]] = field(default_factory=list)
    _opened: dict[str, Host] = field(default_factory=dict)

    def open(self, role: str) -> Host:
        """The host in a role. Raises InputError for a role that is not filled."""
        name = self.roles.get(role, "")
        if not name:
            raise InputError(f"no host in the role {role!r}", hint=f"give --host {role}=NAME")
        return open_host(name, self.inventory, self._opened)

    def fingerprint(self) -> str:
        """sha256 of how the roles' hosts are reached; '' on the lab, whose ports differ each time."""
        if self.simulated:
            return ""
        reached = {name: entry.model_dump() for name, entry in self.inventory.entries.items()}
        return hashlib.sha256(json.dumps([self.roles, reached], sort_keys=True).encode()).hexdigest()

    def close(self) -> None:
        for host in self._opened.values():
            host.close()
        self._opened.clear()
        while self.closers:
            self.closers.pop()()


def wants_lab(assignments: Sequence[str], hosts_file: str, folder: Path) -> bool:
    return not assignments and not hosts_file and not (folder / xdg.HOSTS_FILE).is_file()


def real_places(runbook: Runbook, assignments: Sequence[str], hosts_file: str, folder: Path) -> Places:
    """Hosts from `--host ROLE=NAME`, looked up in hosts.toml and the SSH configuration.

    Raises:
        InputError: an unknown role, a role without host, a name that is nowhere.
    """
    path = xdg.hosts_file(hosts_file, folder)
    inventory = load_inventory(path, missing_ok=not hosts_file)
    known = runbook.front.hosts
    given = parse_assignments(
        assignments,
        what="--host needs the role, too",
        hint=f"write --host ROLE=NAME; roles of {runbook.name}: {', '.join(known)}",
    )
    for role in given:
        if role not in known:
            raise InputError(
                f"{runbook.name} has no host role {role!r}", where=runbook.path, hint=suggest(role, list(known))
            )
    roles: dict[str, str] = {}
    for role, spec in known.items():
        roles[role] = given.get(role, role if role in inventory.entries else "")
        if spec.count and not roles[role]:
            raise InputError(
                f"the role {role!r} has no host{': ' + spec.help if spec.help else ''}",
                where=runbook.path,
                hint=f"give --host {role}=NAME" + _names(inventory),
            )
    places = Places(roles, inventory, inventory_path=str(path) if inventory.path else "")
    for role, name in roles.items():
        if name:
            places.open(role)  # makes no connection yet, but the name must be one
    return places


def _names(inventory: Inventory) -> str:
    return f" (known: {', '.join(inventory.entries)}, local)" if inventory.entries else " (local is this machine)"


def lab_places(runbook: Runbook, scenario: str, *, state: Path | None = None, speed: float | None = None) -> Places:
    """The simulated hosts of a scenario, served on loopback until `close`. `state` restores an earlier world."""
    import opsagent_lab

    lab = opsagent_lab.open(scenario or SCENARIOS.get(runbook.name, "story"), state=state, speed=speed)
    try:
        entries = {name: HostEntry(**settings) for name, settings in lab.hosts().items()}
        roles = {role: str(lab.roles.get(role, "")) for role in runbook.front.hosts}
        missing = [role for role, spec in runbook.front.hosts.items() if spec.count and not roles[role]]
        if missing:
            raise InputError(
                f"the scenario {lab.name!r} has no host in the role {missing[0]!r}",
                where=runbook.path,
                hint="opsagent lab list shows which scenario is for which runbook",
            )
    except BaseException:
        lab.close()
        raise
    params = {name: value for name, value in lab.params.items() if name in runbook.front.params}
    return Places(
        roles, Inventory(entries), params=params, simulated=True, lab_name=lab.name, speed=lab.speed,
        approver=lab.approver, lab=lab, closers=[lab.close],
    )  # fmt: skip


def reopen_places(runbook: Runbook, started: Mapping[str, Any], *, state: Path | None) -> Places:
    """The same hosts as when the run began."""
    if started.get("lab"):
        return lab_places(runbook, str(started["lab"]), state=state)
    assignments = [f"{role}={name}" for role, name in (started.get("hosts") or {}).items() if name]
    return real_places(runbook, assignments, str(started.get("inventory") or ""), Path.cwd())
