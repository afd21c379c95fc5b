"""opsagent.toml: administrator (/etc/opsagent), user ($XDG_CONFIG_HOME/opsagent) and project (./opsagent.toml).

Each layer is read whole, with the file that it came from. Unknown keys are errors with a suggestion. What a layer may say
of the gate, and that a lower one can only tighten it, is decided in `gate/policy_file.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from opsagent.xdg import config_home
from opsagent_tools.errors import InputError, suggest

Level = Literal["administrator", "user", "project"]
NAME = "opsagent.toml"
SECTIONS = ("gate", "notify", "telemetry")
EXAMPLES = {
    "gate": '[gate]\nroots = ["/srv/models"]',
    "notify": '[notify]\nurl_env = "OPSAGENT_NOTIFY_URL"',
    "telemetry": '[telemetry]\nendpoint = "http://localhost:4318"',
}
"""How each table begins, for the message about one that is none."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One file of the configuration."""

    level: Level
    origin: str
    """Path of the file: every setting can say where it comes from."""
    gate: dict[str, Any] = field(default_factory=dict)
    notify: dict[str, Any] = field(default_factory=dict)
    """Who is told when a run waits or ends (notify.py)."""
    telemetry: dict[str, Any] = field(default_factory=dict)
    """Where spans and metrics go (telemetry/)."""


def places(cwd: Path | None = None) -> list[tuple[Level, Path]]:
    """Where the layers lie, the strongest first, whether they exist or not."""
    project = (cwd or Path.cwd()) / NAME
    return [("administrator", Path("/etc/opsagent") / NAME), ("user", config_home() / NAME), ("project", project)]


def layers(cwd: Path | None = None) -> list[Layer]:
    """All layers that exist, the strongest first. Raises InputError for one that cannot be read or has unknown keys."""
    return [read_layer(level, path) for level, path in places(cwd) if path.is_file()]


def read_layer(level: str, path: Path) -> Layer:
    """Read one file. `level` is taken as `project` when it is not one of the three."""
    where = str(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror}", where=where) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not TOML: {error}", where=where, hint="mend that line; strings need quotes") from error
    known_keys(data, SECTIONS, where, "top level")
    tables = {name: data.get(name, {}) for name in SECTIONS}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InputError(f"`{name}` must be a table", where=where, hint=EXAMPLES[name])
    known: Level = "administrator" if level == "administrator" else "user" if level == "user" else "project"
    return Layer(known, where, **tables)


def strongest(
    found: Sequence[Layer], name: str, keys: tuple[str, ...], owner_only: tuple[str, ...], hint: str
) -> Layer | None:
    """The strongest layer that has the table `name`, None when none has.

    A project's file may not set `owner_only` keys: whoever writes a repository must not choose where what is known goes.
    Raises InputError for one that does, with this hint, and for keys that are not in `keys`.
    """
    for layer in found:
        table = getattr(layer, name)
        known_keys(table, keys, layer.origin, f"[{name}]")
        foreign = [key for key in owner_only if key in table and layer.level == "project"]
        if foreign:
            raise InputError(f"`{foreign[0]}` of [{name}] is not for a project's file", where=layer.origin, hint=hint)
    return next((layer for layer in found if getattr(layer, name)), None)


def known_keys(table: dict[str, Any], keys: tuple[str, ...], where: str, place: str) -> None:
    """Raise InputError for the first key that is not one of `keys`."""
    for key in table:
        if key not in keys:
            raise InputError(f"unknown key `{key}` ({place})", where=where, hint=suggest(key, keys))
