"""The flags after `--` as the planner uses them: values, refusals, and changes to a flag list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.sglang.case import Case, Failed
from opsagent_tools.sglang.options import DESTINATIONS, Given, parse, table


@dataclass(frozen=True, slots=True)
class Arguments:
    """Values by destination, and what argparse refuses: then only what stands before it was read."""

    flags: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    unknown: Failed | None = None
    deprecated: tuple[str, ...] = ()


def read_arguments(flags: Sequence[str], case: Case) -> Arguments:
    """Read a flag list against the option table of the case's version."""
    given = parse(flags, case.version)
    refused = given.refused
    failed = Failed("arg-rejected", refused.cause, refused.words, refused.hint) if refused else None
    return Arguments(tuple(flags), given.values, failed, given.deprecated)


def without_unknown(flags: Sequence[str], version: str) -> list[str]:
    """The flags that this version reads, in order: a misspelled choice is put right, what else is refused is left out."""
    kept: list[str] = []
    rest = list(flags)
    while rest:
        end = 1
        while end < len(rest) and not rest[end].startswith("--"):
            end += 1
        piece, rest = rest[:end], rest[end:]
        refused = parse(piece, version).refused
        if refused is None:
            kept += piece
        elif refused.instead:
            kept += [piece[0].partition("=")[0], refused.instead]
    return kept


def apply_change(flags: Sequence[str], change: Mapping[str, str | None], version: str) -> list[str]:
    """The flags with a change: a value replaces in place or is added at the end, None removes, '' is a switch."""
    given: Given = parse(flags, version)
    options = table(version)

    def destination(flag: str) -> str:
        option = options.get(flag)
        name = flag.lstrip("-").replace("-", "_")
        return option.dest if option else DESTINATIONS.get(name, name) if name != "tp" else "tp_size"

    short = {"--tp": "tp_size", "--pp": "pp_size", "--dp": "dp_size", "--ep": "ep_size"}
    todo = {short.get(flag) or destination(flag): (flag, value) for flag, value in change.items()}
    out: list[str] = []
    done: set[str] = set()
    for dest, start, end in given.spans:
        if dest not in todo:
            out += flags[start:end]
        elif dest not in done and todo[dest][1] is not None:
            out += _words(flags[start].partition("=")[0], todo[dest][1])
        if dest in todo:
            done.add(dest)
    for dest, (flag, value) in todo.items():
        if dest not in done and value is not None:
            out += _words(flag, value)
    return out


def _words(flag: str, value: str | None) -> list[str]:
    return [flag, value] if value else [flag]
