"""Names of hosts: `hosts.toml`, plus the aliases of `~/.ssh/config` and the reserved name `local`.

[hosts.kpro5]
address = "10.0.0.5"          # a name, an IP, or a Host alias of ~/.ssh/config
user = "root"                 # optional: port, identity, jump, known_hosts, label, tier_cap, password_env
[hosts."kpro5/ct129"]
via = "kpro5"                 # a container of that host
pct = 129
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsagent_tools.errors import InputError, suggest
from opsagent_tools.host import Host
from opsagent_tools.tool import Tier

if TYPE_CHECKING:
    from opsagent_tools.hosts.connect import SshTarget

LOCAL = "local"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")
DESTINATION = re.compile(
    r"(?:(?P<user>[^@\s:/]+)@)?(?P<address>\[[0-9A-Fa-f:.]+\]|[^@\s:/\[\]]+)(?::(?P<port>\d{1,5}))?"
)


class HostEntry(BaseModel):
    """One table of hosts.toml. Either `address` (SSH) or `via` with `pct` (a container of another entry)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    address: str = ""
    """A name, an IP address or a Host alias of `~/.ssh/config`."""
    user: str = ""
    """Who logs in; without it what `~/.ssh/config` says, else who runs opsagent."""
    port: int = Field(default=0, ge=0, le=65535)
    """0: what `~/.ssh/config` says, else 22."""
    identity: str = ""
    """Path of a private key; without it the agent's and the usual keys are tried."""
    jump: str = ""
    """Another entry of this file, or `user@host:port`."""
    known_hosts: str = ""
    """Path of a known_hosts file that is used instead of the usual ones."""
    password_env: str = ""
    """Name of the environment variable that holds a password. Passwords themselves are never in the file."""
    label: str = ""
    """What a person calls it; shown in prompts (`production`, `blue rack`)."""
    tier_cap: Tier | None = None
    """No call above this tier on this host, whatever the runbook says."""
    via: str = ""
    """A Proxmox container: the entry of its host, or `local`."""
    pct: int | None = Field(default=None, ge=100)
    """A Proxmox container: its number."""
    ssh_config: str = ""
    """Another SSH configuration than `~/.ssh/config`; "none" for no file."""
    connect_timeout_s: float = Field(default=15.0, gt=0)
    """Seconds until a connection that does not come up is given up."""


@dataclass(frozen=True)
class Inventory:
    """The known hosts by name; `path` is the file that they came from ('' for none)."""

    entries: Mapping[str, HostEntry] = field(default_factory=dict)
    path: str = ""

    def label(self, name: str) -> str:
        entry = self.entries.get(name)
        return entry.label if entry else ""


def load_inventory(path: Path | str, *, missing_ok: bool = False) -> Inventory:
    """Read hosts.toml; with `missing_ok` one that is not there is empty.

    Raises InputError: unreadable, unknown keys (with a suggestion), references to nothing.
    """
    if missing_ok and not Path(path).is_file():
        return Inventory()
    where = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror}", where=where, hint="--hosts names a hosts.toml") from error
    except UnicodeDecodeError as error:
        raise InputError(f"not TOML: {error}", where=where, hint="mend that line; strings need quotes") from error
    return parse_inventory(text, where)


def parse_inventory(text: str, where: str) -> Inventory:
    """The same from the text of a hosts.toml; `where` names it in errors."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", where=where, hint="mend that line; strings need quotes") from error
    _known(data, {"hosts"}, where, "top level")
    tables = data.get("hosts", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise InputError("`hosts` must hold one table for each host", where=where, hint='[hosts.NAME]\naddress = "…"')
    entries = {name: _entry(name, table, where) for name, table in tables.items()}
    inventory = Inventory(entries, where)
    for name in entries:
        _chain(name, inventory)
    return inventory


def _known(table: Mapping[str, object], keys: set[str], where: str, place: str) -> None:
    for key in table:
        if key not in keys:
            raise InputError(f"unknown key `{key}` ({place})", where=where, hint=suggest(key, sorted(keys)))


def _entry(name: str, table: dict[str, object], where: str) -> HostEntry:
    place = f'[hosts."{name}"]' if "/" in name else f"[hosts.{name}]"
    if name == LOCAL:
        raise InputError("`local` is reserved for this machine", where=where, hint="choose another name")
    if not NAME.fullmatch(name):
        raise InputError(
            f"bad host name {name!r}", where=where, hint="letters, digits, '-', '_', '.', and '/' between parts"
        )
    if "password" in table:
        raise InputError(
            f"no passwords in this file ({place})", where=where, hint="password_env names a variable that has it"
        )
    _known(table, set(HostEntry.model_fields), where, place)
    try:
        entry = HostEntry.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{place} {key}: {first['msg']}", where=where) from error
    if bool(entry.address) == bool(entry.via):
        hint = "address for SSH (--address HOST), or via and pct for a container (--via PARENT --pct ID)"
        raise InputError(f"{place} needs either `address` or `via`", where=where, hint=hint)
    if bool(entry.via) != (entry.pct is not None):
        raise InputError(f"{place} needs `via` and `pct` together", where=where)
    return entry


def _chain(name: str, inventory: Inventory) -> None:
    """Follow `via` and `jump`: every name must exist, and no name twice."""
    seen, here = [name], name
    while True:
        entry = inventory.entries[here]
        following = entry.via or (entry.jump if entry.jump in inventory.entries else "")
        if entry.via and entry.via not in inventory.entries and entry.via != LOCAL:
            raise InputError(f'[hosts."{here}"] via: {unknown(entry.via, inventory)}', where=inventory.path)
        if not following or following == LOCAL:
            return
        if following in seen:
            raise InputError(f"{' → '.join([*seen, following])} goes in a circle", where=inventory.path)
        seen.append(following)
        here = following


def unknown(name: str, inventory: Inventory) -> str:
    """What to say of a name that is not there."""
    meant = suggest(name, [*inventory.entries, LOCAL], otherwise="")
    return f"no host {name!r}" + (f"; {meant}" if meant else "")


def open_host(name: str, inventory: Inventory | None = None, opened: dict[str, Host] | None = None) -> Host:
    """The host of that name; it connects at its first command.

    `opened` is shared by the hosts of a run, so that a container uses its parent's link. Raises InputError for a name
    that is in neither hosts.toml nor the SSH configuration.
    """
    inventory = inventory or Inventory()
    opened = {} if opened is None else opened
    if name not in opened:
        opened[name] = _open(name, inventory, opened)
    return opened[name]


def _open(name: str, inventory: Inventory, opened: dict[str, Host]) -> Host:
    if name == LOCAL:
        from opsagent_tools.hosts.local import LocalHost

        return LocalHost()
    entry = inventory.entries.get(name)
    if entry is not None and entry.via and entry.pct is not None:
        from opsagent_tools.hosts.container import ContainerHost

        return ContainerHost(name, open_host(entry.via, inventory, opened), entry.pct)
    from opsagent_tools.hosts import connect, ssh

    if entry is not None:
        return ssh.SshHost(name, _target(entry, inventory))
    parts = DESTINATION.fullmatch(name)
    if name in connect.aliases():
        return ssh.SshHost(name, connect.SshTarget(name))
    if parts and parts["user"]:
        return ssh.SshHost(name, _destination(name))
    hint = f"opsagent hosts add {name} --address … writes it into hosts.toml; or a Host entry in ~/.ssh/config"
    raise InputError(unknown(name, inventory), where=inventory.path, hint=hint)


def _target(entry: HostEntry, inventory: Inventory) -> SshTarget:
    from opsagent_tools.hosts import connect

    jump = None
    if entry.jump:
        other = inventory.entries.get(entry.jump)
        jump = _target(other, inventory) if other else _destination(entry.jump, entry)
    return connect.SshTarget(
        entry.address, entry.user, entry.port, str(Path(entry.identity).expanduser()) if entry.identity else "", jump,
        entry.known_hosts, connect.environment_password(entry.password_env), entry.ssh_config, entry.connect_timeout_s,
    )  # fmt: skip


def _destination(text: str, near: HostEntry | None = None) -> SshTarget:
    from opsagent_tools.hosts import connect

    parts = DESTINATION.fullmatch(text)
    if parts is None:
        raise InputError(f"not a destination: {text!r}", hint="[user@]host[:port]")
    address = parts["address"].strip("[]")
    return connect.SshTarget(
        address, parts["user"] or "", int(parts["port"] or 0), known_hosts=near.known_hosts if near else "",
        ssh_config=near.ssh_config if near else "",
    )  # fmt: skip
