"""Reading SGLang's command line with argparse itself, fed from the flags of each version.

`data/flags/<version>.json` holds what that version's `ServerArgs.add_cli_args` declares (names, destination, kind, choices),
read from its sources. Abbreviations, `=`, choices and the words of usage errors are therefore argparse's own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NoReturn

from opsagent_lab.engine.settings import Value

_RENAMED = {
    "tensor_parallel_size": "tp_size",
    "data_parallel_size": "dp_size",
    "pipeline_parallel_size": "pp_size",
    "expert_parallel_size": "ep_size",
}
_COLUMNS = 78


class Usage(Exception):
    """argparse ends the program: what it prints, and the status (2 for errors, 0 for `--help`)."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.text, self.code = text, code


class _Parser(argparse.ArgumentParser):
    """Words of Python 3.12, whatever runs the lab; raises instead of leaving."""

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{self.format_usage()}{self.prog}: error: {message}\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise Usage(message or self.format_help(), status)

    def print_help(self, file: Any = None) -> None:
        raise Usage(self.format_help(), 0)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = ", ".join(map(repr, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r} (choose from {names})")


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=_COLUMNS)


@cache
def rows(version: str) -> tuple[dict[str, Any], ...]:
    """The declared flags of a version."""
    text = (files("opsagent_lab.engine") / "data" / "flags" / f"{version}.json").read_text(encoding="utf-8")
    return tuple(json.loads(text))


@cache
def parser(version: str) -> argparse.ArgumentParser:
    prog = "launch_server.py" if version == "0.5.9" else "sglang serve"
    made = _Parser(prog=prog, formatter_class=_formatter)
    for row in rows(version):
        made.add_argument(*row["names"], **_options(row))
    return made


def _options(row: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"dest": row["dest"]} if "dest" in row else {}
    kind = row["kind"]
    if kind == "flag":
        return {**out, "action": "store_true"}
    if kind == "bool":
        return {**out, "action": argparse.BooleanOptionalAction}
    types: dict[str, type] = {"int": int, "float": float}
    if kind in types:
        out["type"] = types[kind]
    if kind == "append":
        out["action"] = "append"
    for key in ("choices", "nargs", "metavar", "required"):
        if key in row:
            out[key] = row[key]
    return out


def read(version: str, argv: Sequence[str]) -> dict[str, Value]:
    """Typed flags by destination. Raises Usage."""
    try:
        given = vars(parser(version).parse_args(list(argv)))
    except SystemExit as end:
        raise Usage("", int(str(end.code or 0))) from end
    return {_RENAMED.get(name, name): value for name, value in given.items() if value not in (None, False)}


def names(version: str) -> Iterable[str]:
    """Every spelling of every flag."""
    return (name for row in rows(version) for name in row["names"])
