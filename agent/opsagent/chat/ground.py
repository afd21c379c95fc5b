"""Where a chat's calls and runs act: the hosts that are known here by name, or the ones of one lab that stays up.

In a chat every host is its own role. A run that comes out of it has its runbook's roles, filled from the same hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsagent import xdg
from opsagent.places import Places, real_places
from opsagent.runbook.model import Runbook
from opsagent.runbook.params import parse_assignments
from opsagent_tools.errors import InputError, suggest
from opsagent_tools.hosts.inventory import HostEntry, Inventory, load_inventory

SCENARIO = "story"
"""The lab's scenario when none is named."""


@dataclass
class Ground:
    """The hosts of a chat."""

    places: Places
    """Every host in a role of its own name."""
    defaults: dict[str, str]
    """Role → host: what `--host` (or the scenario) says, unless a run says otherwise."""
    hosts_file: str = ""
    folder: Path = field(default_factory=Path.cwd)

    @property
    def names(self) -> list[str]:
        return list(self.places.roles)

    def assigned(self, runbook: Runbook, wanted: Mapping[str, str]) -> dict[str, str]:
        """Role → host for a runbook. Raises InputError: an unknown role or host, or a role that nobody fills."""
        known = runbook.front.hosts
        for role, name in wanted.items():
            if role not in known:
                raise InputError(f"{runbook.name} has no host role {role!r}", hint=suggest(role, list(known)))
            if name and name not in self.places.roles:
                raise InputError(f"this chat has no host {name!r}", hint=suggest(name, self.names))
        roles = {role: wanted.get(role, self._usual(role, len(known))) for role in known}
        for role, spec in known.items():
            if spec.count and not roles[role]:
                what = f"the role {role!r} of {runbook.name} has no host{': ' + spec.help if spec.help else ''}"
                raise InputError(what, hint=f"say which; known: {', '.join(self.names)}")
        return roles

    def _usual(self, role: str, roles: int) -> str:
        if role in self.defaults:
            return self.defaults[role]
        if role in self.places.roles:
            return role
        return self.names[0] if len(self.names) == 1 and roles == 1 else ""

    def for_run(self, runbook: Runbook, wanted: Mapping[str, str]) -> Places:
        """The places of one run: connections of its own; the lab, if there is one, stays up when they are closed."""
        roles = self.assigned(runbook, wanted)
        if self.places.lab is None:
            filled = [f"{role}={name}" for role, name in roles.items() if name]
            return real_places(runbook, filled, self.hosts_file, self.folder)
        return self.lab_places(runbook, roles)

    def lab_places(self, runbook: Runbook, roles: Mapping[str, str]) -> Places:
        """The lab's hosts in the roles of a run."""
        ours = self.places
        params: dict[str, Any] = {
            name: value for name, value in ours.lab.params.items() if name in runbook.front.params
        }  # fmt: skip
        return Places(
            dict(roles), ours.inventory, params=params, simulated=True, lab_name=ours.lab_name, speed=ours.speed,
            approver=ours.approver, lab=ours.lab,
        )  # fmt: skip


def real_ground(hosts: Sequence[str], hosts_file: str, folder: Path) -> Ground:
    """Hosts of hosts.toml, and those that are named: `ROLE=NAME`, or only `NAME`. Raises InputError."""
    path = xdg.hosts_file(hosts_file, folder)
    inventory = load_inventory(path, missing_ok=not hosts_file)
    defaults = parse_assignments([text for text in hosts if "=" in text])
    named = [*defaults.values(), *(text for text in hosts if "=" not in text)]
    names = dict.fromkeys([*inventory.entries, *(name for name in named if name)])
    places = Places({name: name for name in names}, inventory, inventory_path=str(path) if inventory.path else "")
    for name in named:
        places.open(name)  # makes no connection yet, but the name must be one
    if not names:
        raise InputError("this chat has no host", hint="--host NAME, or a hosts.toml; `local` is this machine")
    return Ground(places, defaults, hosts_file, folder)


def lab_ground(scenario: str, folder: Path, *, state: Path | None = None, speed: float | None = None) -> Ground:
    """All hosts of a scenario, served on loopback until the chat ends. `state` restores an earlier world."""
    import opsagent_lab

    lab = opsagent_lab.open(scenario or SCENARIO, state=state, speed=speed)
    entries = {name: HostEntry(**settings) for name, settings in lab.hosts().items()}
    places = Places(
        {name: name for name in entries}, Inventory(entries), simulated=True, lab_name=lab.name, speed=lab.speed,
        approver=lab.approver, lab=lab, closers=[lab.close],
    )  # fmt: skip
    return Ground(places, dict(lab.roles), "", folder)
