"""What a runbook is once it is read: Markdown for people, typed fences for the machine.

A step is a level-2 heading with an id. Its fences are `call`, `check`, `remedy` and `rollback`, YAML inside. Everything
carries its line, so that a fault found by `lint`, a red check or a failed call can point at the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ParamType = Literal["str", "int", "float", "bool", "path", "flags", "map", "list"]


class Param(BaseModel):
    """A typed parameter. Without a default it must be given with `-p name=value`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: ParamType = "str"
    """`flags` is a command line of SGLang; at most one parameter has this type, and remedies change it."""
    default: Any = None
    required: bool = False
    """Without a value the run does not begin (so too for path, int and float without a default)."""
    secret: bool = False
    """Replaced before it can reach the disk, a model or the screen."""
    help: str = ""
    """For people, in messages and in the shell's completion."""


class HostRole(BaseModel):
    """A role that `--host ROLE=NAME` fills."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=1, ge=0, le=1)
    """1: the role must be filled. 0: it may stay empty, and calls on it are skipped."""
    help: str = ""


class Allow(BaseModel):
    """What the runbook declares; the gate lets nothing wider through without a person."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    tools: tuple[str, ...] = ()
    """Tools that a model may call beyond the steps' own calls."""
    roots: tuple[str, ...] = ()
    """Path roots (absolute) under which new files may be made."""
    ports: tuple[str, ...] = ()
    """Ports and ranges, `30000` or `30000-30010`."""
    containers: tuple[str, ...] = ()
    """Numbers of containers that may be written to."""
    units: tuple[str, ...] = ()
    """Units that are servers of this work: stopping one is R2, not R3."""
    hosts: tuple[str, ...] = ()
    """Names of hosts that may be written to; empty: those in the roles."""


class BudgetSpec(BaseModel):
    """Limits of a run, as written (`40m`, `2h`); 0 or empty means the default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wall: str = "4h"
    """Time in all, waiting for people included."""
    working: str = ""
    """Time without waiting for people."""
    calls: int = 200
    turns: int = 200
    """Requests to the model."""
    tokens: int = 0
    """Tokens of an LLM, in and out."""


class OpenItem(BaseModel):
    """What the report leaves to a person at the end of the run, when `when` holds; `say` may hold `${…}` references."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    say: str
    when: str = ""
    """CEL; a result of a call that was not made is null here."""


class FrontMatter(BaseModel):
    """The YAML block at the top of a runbook."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    opsagent: Literal[1]
    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    params: dict[str, Param] = {}
    hosts: dict[str, HostRole] = {}
    allow: Allow = Allow()
    budget: BudgetSpec = BudgetSpec()
    report: str = "status"
    maintenance_window: str = ""
    """`Sat,Sun 22:00-04:00 UTC`: outside it only reads and rollbacks run."""
    open: tuple[OpenItem, ...] = ()
    """What the report leaves to a person."""


class CallSpec(BaseModel):
    """A typed call as the runbook writes it; `args` may hold `"${…}"` references."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    tool: str
    host: str = ""
    """The role of the host; may be left out when there is one role."""
    args: dict[str, Any] = {}
    bind: str = Field(default="", alias="as", pattern=r"^([a-z][a-z0-9_]*)?$")
    when: str = ""
    """CEL: the call is skipped, and its name bound to null, when this is false."""
    optional: bool = False
    """The operator may refuse it and the run goes on; the report lists it as open."""


class RemedySpec(BaseModel):
    """What to do about one cause: change parameters, call, ask, and where to go on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    set: dict[str, Any] = {}
    """`--flag: value` changes the one parameter of type flags (null removes the flag); a bare name sets a parameter."""
    call: list[CallSpec] = []
    """Calls to make first."""
    ask: str = ""
    """A question for the operator before that."""
    then: str = ""
    """The step from which the run goes on; without it the first that uses what changed, else the same one."""


@dataclass(frozen=True, slots=True)
class Call:
    """A `call` or `rollback` fence at its line."""

    spec: CallSpec
    line: int


@dataclass(frozen=True, slots=True)
class Check:
    """One expression of a `check` fence; the comment behind it says what it is for."""

    expr: str
    line: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One cause of a `remedy` fence."""

    cause: str
    spec: RemedySpec
    line: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step: left only when its checks pass."""

    id: str
    title: str
    line: int
    prose: str = ""
    calls: tuple[Call, ...] = ()
    checks: tuple[Check, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    rollbacks: tuple[Call, ...] = ()

    def remedy(self, cause: str) -> Remedy | None:
        return next((remedy for remedy in self.remedies if remedy.cause == cause), None)


@dataclass(frozen=True, slots=True)
class Runbook:
    """A compiled runbook. `text` is the exact file, for the journal."""

    path: str
    text: str
    front: FrontMatter
    title: str
    intro: str
    steps: tuple[Step, ...]
    remedies: tuple[Remedy, ...] = field(default=())
    """Remedies that hold in every step: fences before the first step."""

    @property
    def name(self) -> str:
        return self.front.name

    @property
    def flags_param(self) -> str:
        """Name of the one parameter of type `flags` ('' if there is none): what a `--flag` remedy changes."""
        return next((name for name, param in self.front.params.items() if param.type == "flags"), "")

    def index(self, step_id: str) -> int:
        return next(i for i, step in enumerate(self.steps) if step.id == step_id)
