"""Reading a scenario: one TOML file with hosts, faults, an approver and a goal. Unknown keys are errors."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, TypeVar

from opsagent_lab.approver import Rule
from opsagent_lab.faults import Fault
from opsagent_tools.errors import InputError, suggest

T = TypeVar("T")


class ScenarioError(InputError):
    """A scenario that is not there or not right."""


@dataclass(frozen=True)
class Cards:
    """Equal cards of a machine."""

    model: str
    count: int = 1
    driver: str = "nvidia"
    """What holds them: `nvidia`, `vfio-pci`, `nouveau` or '' for nothing."""


@dataclass(frozen=True)
class Server:
    """A model server that has been up for a while."""

    python: str
    argv: list[str]
    """After `-m sglang.launch_server`."""
    unit: str = ""
    age_s: float = 86_400.0
    log: str = "/var/log/sglang/server.log"


@dataclass(frozen=True)
class Other:
    """A process that only exists, with what it holds of each card by index."""

    argv: list[str]
    title: str = ""
    user: str = "root"
    gpu_mib: dict[str, int] = field(default_factory=dict)
    ports: list[int] = field(default_factory=list)
    age_s: float = 40_000.0
    rss_mib: int = 900


@dataclass(frozen=True)
class Failed:
    """A unit that failed before the scenario begins."""

    unit: str
    argv: list[str]
    signal: int = 0
    status: int = 1
    age_s: float = 5_400.0
    log: str = ""
    """Path that its output went to; the text stands in `files`."""


@dataclass(frozen=True)
class Machine:
    """One host of a scenario."""

    hostname: str = ""
    parent: str = ""
    ctid: int = 0
    ssh: bool = True
    """False: reached through its parent only."""
    addresses: list[str] = field(default_factory=list)
    pve: str = ""
    os: str = "debian-12"
    memory_gib: int = 128
    cpus: int = 32
    disk_gib: int = 1800
    used_gib: int = 40
    systemd: bool = True
    driver: str = ""
    """Version of the NVIDIA driver ('' for none): module and user space, in a container the user space only."""
    cuda: str = "13.0"
    uv: str = ""
    cards: list[Cards] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    installers: list[str] = field(default_factory=list)
    """Paths of NVIDIA's installers."""
    venvs: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    servers: list[Server] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    processes: list[Other] = field(default_factory=list)


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    runbook: str
    goal: str
    roles: dict[str, str]
    hosts: dict[str, Machine]
    speed: float = 60.0
    seed: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    approver: list[Rule] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    oracle: dict[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """The scenarios that come with the lab."""
    folder = resources("opsagent_lab") / "scenarios"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def load(name: str) -> Scenario:
    """A scenario by name, or from a path that ends in `.toml`. Raises ScenarioError."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise ScenarioError(f"no such file: {name}")
        return parse(path.stem, path.read_text(encoding="utf-8"))
    return parse(name, _packaged(name))


def _packaged(name: str) -> str:
    if name not in names():
        hint = suggest(name, names(), otherwise="opsagent lab list shows them")
        raise ScenarioError(f"no scenario {name!r} (there are {', '.join(names())})", hint=hint)
    return (resources("opsagent_lab") / "scenarios" / f"{name}.toml").read_text(encoding="utf-8")


def parse(name: str, text: str) -> Scenario:
    """`extends = "other"` begins with another scenario's tables: tables are merged, everything else is replaced."""
    data = _tables(name, text)
    data["hosts"] = {host: _machine(f"{name}: {host}", table) for host, table in data.get("hosts", {}).items()}
    data["approver"] = [_make(Rule, rule, f"{name}: approver") for rule in data.get("approver", [])]
    data["faults"] = [_make(Fault, fault, f"{name}: faults") for fault in data.get("faults", [])]
    made = _make(Scenario, {"name": name, **data}, name)
    for role, host in made.roles.items():
        if host not in made.hosts:
            raise ScenarioError(f"{name}: the role {role!r} names the host {host!r}, which is not there")
    return made


def _tables(name: str, text: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ScenarioError(f"{name}: not TOML: {problem}") from problem
    base = data.pop("extends", None)
    return data if base is None else _merged(_tables(str(base), _packaged(str(base))), data)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        out[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _machine(where: str, table: dict[str, Any]) -> Machine:
    kinds: dict[str, type[Any]] = {"cards": Cards, "servers": Server, "processes": Other, "failed": Failed}
    for key, kind in kinds.items():
        table[key] = [_make(kind, item, f"{where}: {key}") for item in table.get(key, [])]
    return _make(Machine, table, where)


def _make(kind: type[T], table: dict[str, Any], where: str) -> T:
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    strange = sorted(set(table) - known)
    if strange:
        raise ScenarioError(f"{where}: unknown key {strange[0]!r} (known: {', '.join(sorted(known))})")
    try:
        return kind(**table)
    except TypeError as problem:
        raise ScenarioError(f"{where}: {problem}") from problem
