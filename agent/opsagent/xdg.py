"""Where a user's files are: the XDG base directories. A variable that is empty or relative counts as not set.

Configuration is what a person writes (opsagent.toml, hosts.toml, learned signatures), state what the program must find
again (runs, history). Nothing is cached.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

HOSTS_FILE = "hosts.toml"


def config_home(env: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CONFIG_HOME/opsagent`, by default `~/.config/opsagent`."""
    return _base("XDG_CONFIG_HOME", ".config", env) / "opsagent"


def state_home(env: Mapping[str, str] | None = None) -> Path:
    """`$XDG_STATE_HOME/opsagent`, by default `~/.local/state/opsagent`."""
    return _base("XDG_STATE_HOME", ".local/state", env) / "opsagent"


def _base(name: str, default: str, env: Mapping[str, str] | None) -> Path:
    found = (os.environ if env is None else env).get(name, "")
    return Path(found) if found and Path(found).is_absolute() else Path.home() / default


def hosts_file(given: str | Path = "", folder: Path | None = None) -> Path:
    """The hosts.toml that is meant: the given one, the folder's, the user's; the folder's when there is none yet."""
    if given:
        return Path(given)
    here, user = (folder or Path.cwd()) / HOSTS_FILE, config_home() / HOSTS_FILE
    return user if user.is_file() and not here.is_file() else here
