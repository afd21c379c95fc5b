"""A suite: which scenarios a model has to master, and how often.

title = "…"
repeat = 1                     # attempts of each task; a model that is not deterministic wants 5 or more
[[task]]
scenario = "broken-port"       # of the lab, or the path of a .toml file
runbook = "launch"             # left out: the one that the scenario names
params = {}                    # over the scenario's own
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsagent_lab import scenario
from opsagent_tools.errors import InputError, suggest

PACKAGED = files("opsagent_lab") / "evaluation" / "suites"


class Task(BaseModel):
    """One scenario that a model is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scenario: str
    runbook: str = ""
    params: dict[str, Any] = {}


class Suite(BaseModel):
    """Tasks, each attempted `repeat` times."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str = ""
    title: str
    repeat: int = Field(1, ge=1, le=100)
    tasks: tuple[Task, ...] = Field(alias="task", min_length=1)


def names() -> list[str]:
    """The suites that come with the lab."""
    return sorted(item.name.removesuffix(".toml") for item in PACKAGED.iterdir() if item.name.endswith(".toml"))


def load(name: str) -> Suite:
    """A suite by name, from a path that ends in `.toml`, or of one task by the name of a scenario.

    Raises:
        InputError: no such suite, not TOML, an unknown key, a scenario that is not there.
    """
    if name in names():
        return _parse(name, (PACKAGED / f"{name}.toml").read_text(encoding="utf-8"))
    if name.endswith(".toml"):
        try:
            return _parse(name, Path(name).read_text(encoding="utf-8"))
        except OSError as problem:
            raise InputError(f"cannot read the suite {name}: {problem.strerror}") from None
    if name in scenario.names():
        return Suite(name=name, title=scenario.load(name).title, tasks=(Task(scenario=name),))
    known = [*names(), *scenario.names()]
    raise InputError(
        f"there is no suite and no scenario {name!r}",
        hint=suggest(name, known) or f"suites: {', '.join(names())}; or a scenario of `opsagent lab list`",
    )


def _parse(name: str, text: str) -> Suite:
    try:
        suite = Suite.model_validate({"name": Path(name).stem, **tomllib.loads(text)})
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"not TOML: {problem}", where=name) from None
    except ValidationError as problem:
        first = problem.errors()[0]
        raise InputError(first["msg"], where=f"{name}: {'.'.join(map(str, first['loc']))}") from None
    for task in suite.tasks:
        scenario.load(task.scenario)  # raises for one that is not there, before anything runs
    return suite
