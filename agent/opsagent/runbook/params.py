"""Parameters of a run: `-p name=value` against the types of the front matter."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from opsagent.runbook.model import Param, Runbook
from opsagent_tools.errors import InputError, suggest

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def duration(text: str | float) -> float:
    """Seconds of `40m`, `2h`, `90` or `1.5h`. Raises InputError."""
    match = _DURATION.match(str(text))
    if not match:
        raise InputError(f"not a duration: {text!r}", hint="write 90s, 40m, 2h or 1d")
    return float(match.group(1)) * _SECONDS[match.group(2)]


def coerce(param: Param, value: Any, name: str) -> Any:
    """A value of the parameter's type, from text or YAML. `flags` becomes a list of strings."""
    kind = param.type
    try:
        if value is None:
            return None
        if kind == "flags":
            return [str(item) for item in value] if isinstance(value, list) else shlex.split(str(value))
        if kind in ("map", "list"):
            return _collection(kind, yaml.safe_load(value) if isinstance(value, str) else value)
        if kind == "bool":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if kind in ("int", "float"):
            if isinstance(value, bool):
                raise ValueError("a truth value")
            return int(str(value)) if kind == "int" else float(str(value))
        return str(value)
    except (ValueError, KeyError, yaml.YAMLError) as error:
        raise InputError(
            f"parameter {name}: {value!r} is not of type {kind}", hint=f"write -p {name}={_example(kind)}"
        ) from error


def _collection(kind: str, value: Any) -> Any:
    if kind == "map" and isinstance(value, dict | None):
        return {str(key): str(item) for key, item in (value or {}).items()}
    if kind == "list" and isinstance(value, list | None):
        return list(value or [])
    raise ValueError(f"not a {kind}")


def _example(kind: str) -> str:
    return {
        "int": "4", "float": "0.9", "bool": "true", "map": "'{KEY: value}'", "list": "'[a, b]'",
        "flags": "'--flag value'", "path": "/srv/models/NAME",
    }.get(kind, "VALUE")  # fmt: skip


def parse_assignments(
    texts: Sequence[str], *, what: str = "not a parameter", hint: str = "write -p name=value"
) -> dict[str, str]:
    """`["a=1", "b=x=y"]` as a dict; the first `=` divides. `what` and `hint` are for the option that they came from."""
    found: dict[str, str] = {}
    for text in texts:
        name, divider, value = text.partition("=")
        if not divider or not name:
            raise InputError(f"{what}: {text!r}", hint=hint)
        found[name.strip()] = value
    return found


def bind(runbook: Runbook, given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All parameters of a run with their types: what was given, else the scenario's, else the runbook's defaults.

    Raises:
        InputError: an unknown name, a value of another type, or a parameter without value.
    """
    known = runbook.front.params
    for name in given:
        if name not in known:
            raise InputError(
                f"{runbook.name} has no parameter {name!r}", where=runbook.path, hint=suggest(name, list(known))
            )
    values: dict[str, Any] = {}
    for name, param in known.items():
        value = given.get(name, (defaults or {}).get(name, param.default))
        if value is None and (param.required or (param.default is None and param.type in ("path", "int", "float"))):
            raise InputError(
                f"parameter {name} is missing", where=runbook.path, hint=f"give -p {name}={_example(param.type)}"
            )
        values[name] = coerce(param, value, name)
    return values


def set_flag(flags: Sequence[str], flag: str, value: Any) -> list[str]:
    """A flag list with one flag added, replaced, or (value null) removed; the order of the others stays.

    `true` writes the flag alone. Both `--flag value` and `--flag=value` are recognised as the old form.
    """
    kept: list[str] = []
    position = None
    skip = False
    for item in flags:
        if skip and not item.startswith("--"):
            continue
        skip = False
        if item == flag or item.startswith(flag + "="):
            position = len(kept) if position is None else position
            skip = item == flag
            continue
        kept.append(item)
    if value is None or value is False:
        return kept
    new = [flag] if value is True else [flag, value if isinstance(value, str) else json.dumps(value)]
    at = len(kept) if position is None else position
    return [*kept[:at], *new, *kept[at:]]
