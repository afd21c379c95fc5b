"""Everything that can be known of a runbook before it runs: names, types, references, expressions, places to go."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from opsagent.runbook import expr
from opsagent.runbook.model import Call, CallSpec, Remedy, Runbook, Step
from opsagent.runbook.params import coerce, duration
from opsagent.runbook.parse import Fault, parse
from opsagent_tools.errors import InputError, suggest
from opsagent_tools.tool import Tool

ALWAYS_BOUND = ("hosts", "run")
"""`hosts.ROLE` is the host's name ('' when the role is empty); `run.simulated`, `run.dry`."""
DASHED = "--"


@dataclass
class _Linter:
    runbook: Runbook
    tools: Mapping[str, Tool[Any, Any]]
    causes: frozenset[str]
    faults: list[Fault] = field(default_factory=list)
    bound: dict[str, str] = field(default_factory=dict)
    """Names that are bound so far: result name → tool."""

    def fault(self, line: int, what: str, instead: str = "") -> None:
        self.faults.append(Fault(self.runbook.path, line, what, instead))


def lint(
    text: str, path: str, tools: Mapping[str, Tool[Any, Any]], causes: frozenset[str] = frozenset()
) -> tuple[Runbook | None, list[Fault]]:
    """Compile and check a runbook; returns it (None when too broken to look further) and all faults by line."""
    runbook, faults = parse(text, path)
    if runbook is None:
        return None, faults
    linter = _Linter(runbook, tools, causes)
    _front(linter)
    for remedy in runbook.remedies:
        _remedy(linter, remedy)
    for step in runbook.steps:
        _step(linter, step)
    _open(linter)
    return runbook, sorted(faults + linter.faults, key=lambda fault: fault.line)


def _front(linter: _Linter) -> None:
    front = linter.runbook.front
    flags = [name for name, param in front.params.items() if param.type == "flags"]
    if len(flags) > 1:
        linter.fault(
            2, f"more than one parameter of type flags: {', '.join(flags)}", "a remedy must know which to change"
        )
    for name, param in front.params.items():
        if name in ALWAYS_BOUND:
            linter.fault(2, f"parameter {name!r} hides a built-in name", "choose another name")
        try:
            coerce(param, param.default, name)
        except InputError as error:
            linter.fault(2, f"default of {error.what}")
    for tool in front.allow.tools:
        if tool not in linter.tools:
            linter.fault(2, f"allow names an unknown tool {tool!r}", suggest(tool, list(linter.tools)))
    for root in front.allow.roots:
        if not root.startswith("/") or root == "/" or ".." in root.split("/"):
            linter.fault(2, f"allow.roots: {root!r}", "an absolute path below / without ..")
    for ports in front.allow.ports:
        low, _, high = str(ports).partition("-")
        if not low.isdigit() or (high and not high.isdigit()) or not 0 < int(low) <= int(high or low) < 65536:
            linter.fault(2, f"allow.ports: {ports!r}", "a port or a range like 30000-30010")
    for name in ("wall", "working"):
        value = getattr(front.budget, name)
        try:
            duration(value or "0")
        except InputError as error:
            linter.fault(2, f"budget.{name}: {error.what}", error.hint)


def _step(linter: _Linter, step: Step) -> None:
    for call in step.calls:
        _call(linter, call.spec, call.line)
        if call.spec.bind:
            _bind(linter, call)
    for check in step.checks:
        _expression(linter, check.expr, check.line)
    for remedy in step.remedies:
        _remedy(linter, remedy)
    for rollback in reversed(step.rollbacks):  # the order in which they are made
        _call(linter, rollback.spec, rollback.line)
        if rollback.spec.bind:
            _bind(linter, rollback)


def _open(linter: _Linter) -> None:
    """The report's open items, which may look at everything."""
    for item in linter.runbook.front.open:
        for text in [*([item.when] if item.when else []), *expr.references(item.say)]:
            _expression(linter, text, 2)


def _bind(linter: _Linter, call: Call) -> None:
    name = call.spec.bind
    if name in ALWAYS_BOUND or name in linter.runbook.front.params:
        linter.fault(call.line, f"`as: {name}` hides a parameter or a built-in name", "choose another name")
    linter.bound[name] = call.spec.tool


def _call(linter: _Linter, spec: CallSpec, line: int) -> None:
    front = linter.runbook.front
    tool = linter.tools.get(spec.tool)
    if tool is None:
        linter.fault(line, f"unknown tool {spec.tool!r}", suggest(spec.tool, list(linter.tools)))
        return
    if front.allow.tools and spec.tool not in front.allow.tools and spec.tool != "ask_operator":
        linter.fault(
            line, f"{spec.tool} is not in allow.tools", "add it there: what is not declared is asked each time"
        )
    if spec.host and spec.host not in front.hosts:
        linter.fault(line, f"unknown host role {spec.host!r}", suggest(spec.host, list(front.hosts)))
    if spec.when:
        _expression(linter, spec.when, line)
    fields = {f.alias or name: f for name, f in tool.args.model_fields.items()}
    for key in spec.args:
        if key not in fields:
            linter.fault(line, f"{spec.tool} has no argument {key!r}", suggest(key, list(fields)))
    for key, info in fields.items():
        if info.is_required() and key not in spec.args:
            linter.fault(line, f"{spec.tool} needs the argument {key!r}", info.description or "")
    for text in expr.references(spec.args):
        _expression(linter, text, line)
    _literals(linter, tool, spec, line)


def _literals(linter: _Linter, tool: Tool[Any, Any], spec: CallSpec, line: int) -> None:
    """Validate the arguments that hold no reference; a reference's value is known only at run time."""
    literal = {key for key, value in spec.args.items() if not any(expr.references(value))}
    try:
        tool.args.model_validate({key: spec.args[key] for key in literal})
    except ValidationError as error:
        for item in error.errors():
            key = str(item["loc"][0]) if item["loc"] else ""
            if key in literal and item["type"] not in ("missing", "extra_forbidden"):
                place = ".".join(str(part) for part in item["loc"])
                linter.fault(line, f"{spec.tool}: {place}: {item['msg']}")


def _remedy(linter: _Linter, remedy: Remedy) -> None:
    spec = remedy.spec
    if linter.causes and remedy.cause not in linter.causes:
        linter.fault(remedy.line, f"unknown cause {remedy.cause!r}", suggest(remedy.cause, list(linter.causes)))
    for name in spec.set:
        if name.startswith(DASHED):
            if not linter.runbook.flags_param:
                linter.fault(remedy.line, f"set {name}: no parameter of type flags", "declare one under params")
        elif name not in linter.runbook.front.params:
            known = list(linter.runbook.front.params)
            linter.fault(remedy.line, f"set {name!r}: no such parameter", suggest(name, known))
    for call in spec.call:
        _call(linter, call, remedy.line)
    steps = [step.id for step in linter.runbook.steps]
    if spec.then and spec.then not in steps:
        linter.fault(remedy.line, f"then: no step {spec.then!r}", suggest(spec.then, steps))
    for text in expr.references([spec.set, spec.ask]):
        _expression(linter, text, remedy.line)
    if not (spec.set or spec.call or spec.ask or spec.then):
        linter.fault(remedy.line, f"remedy {remedy.cause!r} does nothing", "give set, call, ask or then")


def _expression(linter: _Linter, text: str, line: int) -> None:
    try:
        used = expr.paths(text)
    except expr.ExprError as error:
        linter.fault(line, error.what, error.hint)
        return
    known = [*linter.runbook.front.params, *linter.bound, *ALWAYS_BOUND]
    later = {call.spec.bind for step in linter.runbook.steps for call in step.calls if call.spec.bind}
    for root, path in used:
        if root not in known:
            instead = "it is bound only later" if root in later else suggest(root, known)
            linter.fault(line, f"{text}: unknown name {root!r}", instead)
        elif root in linter.bound and linter.bound[root] in linter.tools:
            _fields(linter, text, line, root, path)
        elif root == "hosts" and path and path[0] not in linter.runbook.front.hosts:
            linter.fault(
                line, f"{text}: unknown host role {path[0]!r}", suggest(path[0], list(linter.runbook.front.hosts))
            )


def _fields(linter: _Linter, text: str, line: int, root: str, path: tuple[str, ...]) -> None:
    """Follow `a.b.c` through the tool's result model as far as its types are models."""
    kind: Any = linter.tools[linter.bound[root]].result
    seen = root
    for part in path:
        model = next(_models(kind), None)
        if model is None:
            return
        if part not in model.model_fields:
            linter.fault(line, f"{text}: {seen} has no {part!r}", suggest(part, list(model.model_fields)))
            return
        kind = model.model_fields[part].annotation
        seen += f".{part}"


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """The pydantic model in a type: itself, or the one in `X | None`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind.model_config.get("extra") != "allow":
            yield kind
    elif typing.get_origin(kind) in (typing.Union, types.UnionType):
        options = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        if len(options) == 1:
            yield from _models(options[0])
