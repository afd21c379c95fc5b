"""hosts.toml, edited: one entry is added or changed; comments, order and everything else stay as they are.

The new text is read back before it replaces the file, and it replaces it whole or not at all.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from opsagent.journal.disk import Disk, put_file
from opsagent_tools.errors import InputError
from opsagent_tools.hosts.inventory import Inventory, parse_inventory

Setting = str | int | None


def read(path: Path) -> str:
    """The text of the file; '' when there is none yet. Raises InputError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read it: {error}", where=str(path)) from error


def edited(text: str, name: str, settings: Mapping[str, Setting], where: str) -> tuple[str, Inventory]:
    """The text with these settings of the entry `name` (None removes one), and what it now says.

    Raises InputError for a file that is none, or an entry that cannot be one: see `parse_inventory`.
    """
    before = _data(text, where)
    document = tomlkit.parse(text)
    hosts: Any = document.get("hosts")
    if hosts is None:
        hosts = tomlkit.table(is_super_table=True)
        document["hosts"] = hosts
    if not isinstance(hosts, MutableMapping) or not isinstance(hosts.get(name, {}), MutableMapping):
        raise InputError("`hosts` must hold one table for each host", where=where, hint='[hosts.NAME]\naddress = "…"')
    inline = isinstance(hosts, InlineTable)
    if name not in hosts:
        if text and not text.endswith("\n\n") and not inline:
            document.add(tomlkit.nl())
        hosts[name] = tomlkit.inline_table() if inline else tomlkit.table()
    entry = hosts[name]
    for key, value in settings.items():
        if value is not None:
            entry[key] = value
        elif key in entry:
            del entry[key]
    made = tomlkit.dumps(document)
    _same(made, before, name, settings, where)
    return made, parse_inventory(made, where)


def _data(text: str, where: str) -> dict[str, Any]:
    try:
        tomlkit.parse(text)
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, TOMLKitError) as error:
        raise InputError(f"not TOML: {error}", where=where, hint="repair it by hand; it was not changed") from error


def _same(made: str, before: dict[str, Any], name: str, settings: Mapping[str, Setting], where: str) -> None:
    """The editor must have done what was asked and nothing else: a style of TOML that it breaks is an error, not a loss."""
    wanted = {**before, "hosts": {**before.get("hosts", {})}}
    entry = {**wanted["hosts"].get(name, {}), **settings}
    wanted["hosts"][name] = {key: value for key, value in entry.items() if value is not None}
    try:
        same = tomllib.loads(made) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise InputError("cannot edit this file without harm", where=where, hint=f"add [hosts.{name}] by hand")


def write(path: Path, text: str) -> None:
    """Replace the file at once, with the mode that it had. Raises InputError."""
    real = path.resolve()
    try:
        mode = real.stat().st_mode & 0o777 if real.exists() else 0o644
        real.parent.mkdir(parents=True, exist_ok=True)
        put_file(Disk(), real, text.encode())
        real.chmod(mode)
    except OSError as error:
        raise InputError(f"cannot write it: {error.strerror}", where=str(path), hint="it was not changed") from error
