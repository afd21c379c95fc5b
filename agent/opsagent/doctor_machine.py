"""Checks of this machine: Python, packages, folders, configuration, what SSH needs. Nothing is changed or sent."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from opsagent import __version__, xdg
from opsagent.doctor import Check, failed
from opsagent.journal.runs import runs_root
from opsagent_tools.errors import ExitCode, OpsError

LEAST_FREE = 512 * 2**20
"""Bytes that a run's outputs may take; less free space is worth a word."""
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)[^;]*(?:;.*extra == ['\"](?P<extra>[^'\"]+)['\"])?")


def machine(env: Mapping[str, str]) -> Iterator[Check]:
    """Every check of this machine, in the order in which a person would mend them."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Check("machine", "python", sys.version_info >= (3, 11), version, "opsagent needs Python 3.11 or newer")
    yield from _packages()
    yield _folder("runs folder", runs_root(env), "set XDG_STATE_HOME to a folder that can be written")
    yield _config_folder(xdg.config_home(env))
    yield _configuration(env)
    yield _runbooks()
    yield from _ssh(env)


def _requirements() -> dict[str, list[str]] | None:
    """Names of required packages by extra ('' for those that are always needed); None when we are not installed."""
    try:
        found = importlib.metadata.requires("opsagent") or []
        if importlib.metadata.version("opsagent") != __version__:
            return None  # the stranger's package of that name
    except importlib.metadata.PackageNotFoundError:
        return None
    names: dict[str, list[str]] = {"": []}
    for text in found:
        if match := REQUIREMENT.match(text):
            names.setdefault(match["extra"] or "", []).append(match["name"])
    return names


def _packages() -> Iterator[Check]:
    names = _requirements()
    if names is None:
        yield Check("machine", "packages", None, "opsagent is run from its sources, not installed", "pip install .")
        return
    have, missing = _versions(names.pop(""))
    hint = "install opsagent again with pip" if missing else ""
    yield Check(
        "machine", "packages", not missing, f"missing: {', '.join(missing)}" if missing else ", ".join(have), hint
    )
    for extra, needed in sorted(names.items()):
        have, missing = _versions(needed)
        detail = f"not installed: {', '.join(missing)}" if missing else ", ".join(have)
        hint = f"only for `{extra}`: pip install '.[{extra}]'" if missing else ""
        yield Check("machine", f"extra {extra}", None if missing else True, detail, hint)


def _versions(names: list[str]) -> tuple[list[str], list[str]]:
    """(`name version` of those that are installed, names of those that are not)."""
    have, missing = [], []
    for name in names:
        try:
            have.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return have, missing


def _folder(name: str, root: Path, hint: str) -> Check:
    """Whether a run could be journaled: write, flush, space."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(root).free
    except OSError as error:
        return Check("machine", name, False, f"{root}: {error.strerror}", hint)
    small = free < LEAST_FREE
    detail = f"{root}, {free / 2**30:.1f} GiB free"
    return Check("machine", name, None if small else True, detail, "little space: remove old runs" if small else "")


def _config_folder(folder: Path) -> Check:
    """Only `diagnose --learn` and people write there: that it cannot be written is worth knowing, no more."""
    nearest = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    fine = nearest.is_dir() and os.access(nearest, os.W_OK)
    hint = "" if fine else "set XDG_CONFIG_HOME to a folder that can be written"
    return Check("machine", "configuration folder", fine or None, str(folder), hint)


def _configuration(env: Mapping[str, str]) -> Check:
    """The layers of opsagent.toml, read by whoever reads them in a run, with the examples of every rule."""
    from opsagent.config import layers
    from opsagent.gate.policy_file import policy_from
    from opsagent.telemetry.settings import settings_of
    from opsagent.webhook import webhook_of

    try:
        found = layers()
        policy_from(found)
        webhook_of(found, env)
        settings_of(found, env)
    except OpsError as error:
        return failed("machine", "configuration", error)
    return Check("machine", "configuration", True, ", ".join(layer.origin for layer in found) or "all defaults")


def _runbooks() -> Check:
    from opsagent.data import data_dir

    names = sorted(path.stem for path in data_dir("runbooks").glob("*.md"))
    hint = "" if names else "install opsagent again with pip"
    return Check("machine", "runbooks", bool(names), ", ".join(names) or "none came with the program", hint)


def _ssh(env: Mapping[str, str]) -> Iterator[Check]:
    """What the connection will use. ssh itself is not needed, but people compare and remove keys with its programs."""
    from opsagent_tools.hosts.connect import aliases

    try:
        names = sorted(aliases())
        yield Check("machine", "ssh configuration", True, f"aliases: {', '.join(names)}" if names else "no aliases")
    except OpsError as error:
        yield failed("machine", "ssh configuration", error)
    folder = Path.home() / ".ssh"
    known = folder / "known_hosts"
    hint = "unknown hosts are refused: `opsagent hosts add` shows a key, and how to accept it"
    yield Check("machine", "known_hosts", known.is_file() or None, str(known), "" if known.is_file() else hint)
    agent = env.get("SSH_AUTH_SOCK", "")
    keys = sorted(path.name for path in folder.glob("id_*") if path.suffix != ".pub") if folder.is_dir() else []
    detail = ("an agent runs; " if agent else "no agent; ") + (f"keys: {', '.join(keys)}" if keys else "no keys")
    yield Check(
        "machine", "ssh keys", bool(agent or keys) or None, detail, "" if agent or keys else "make one: ssh-keygen"
    )
    program = shutil.which("ssh-keygen", path=env.get("PATH"))
    hint = "" if program else "not needed, but people compare host keys with it: install OpenSSH's client"
    yield Check("machine", "ssh-keygen", bool(program) or None, program or "not found", hint, ExitCode.INVALID)
