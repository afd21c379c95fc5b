"""SGLang's command line by version, read as its argparse reads it (`data/options.json`, made by tools/sglang_options.py).

Any unambiguous prefix is an option, a value follows `=` or a space, lists end at the next option. What argparse
would refuse is a
`Refused` with its own words and a hint: the version that has the option, what it is called now, or the nearest spelling.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from opsagent_tools.errors import meant, suggest
from opsagent_tools.sglang.arithmetic import ARITHMETIC, nearest, release
from opsagent_tools.sglang.value_types import convert

DESTINATIONS = {
    "tensor_parallel_size": "tp_size", "pipeline_parallel_size": "pp_size", "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size", "attention_context_parallel_size": "attn_cp_size",
    "moe_data_parallel_size": "moe_dp_size", "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "cuda_graph_bs_decode": "cuda_graph_bs",
}  # fmt: skip
"""Where `ServerArgs.from_cli_args` renames what argparse stored, and what later versions call the same thing."""
RENAMED = {
    "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
}


SWITCHES = ("switch", "off")
LISTS = ("list", "many")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its spellings, where its value goes, and what it takes."""

    names: tuple[str, ...]
    dest: str
    kind: str
    type: str
    choices: tuple[Any, ...] | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """What argparse says, which taxonomy cause that is, and what to write instead."""

    cause: str
    words: str
    hint: str = ""
    instead: str = ""
    """A value that was surely meant: the one choice that is spelled almost so."""


@dataclass(frozen=True)
class Given:
    """Values by destination (only those that were given), and which words of the line belong to which destination."""

    values: Mapping[str, Any] = field(default_factory=dict)
    spans: tuple[tuple[str, int, int], ...] = ()
    refused: Refused | None = None
    deprecated: tuple[str, ...] = ()


@cache
def _raw() -> dict[str, list[list[Any]]]:
    table: dict[str, list[list[Any]]] = json.loads(
        files("opsagent_tools.sglang").joinpath("data/options.json").read_text("utf-8")
    )
    return table


@cache
def table(version: str) -> Mapping[str, Option]:
    """Every spelling of every option of a version; of the nearest modelled one when this is not."""
    known = version if version in ARITHMETIC else nearest(version)[0].version
    found = {}
    for names, dest, kind, kind_of, choices, _default, new in _raw()[known]:
        option = Option(
            tuple(names),
            DESTINATIONS.get(dest, dest),
            kind,
            kind_of,
            tuple(choices) if choices is not None else None,
            new,
        )
        if kind == "toggle":  # argparse's BooleanOptionalAction: every spelling has its opposite
            opposites = [f"--no-{name.removeprefix('--')}" for name in names]
            option = replace(option, names=(*names, *opposites), kind="switch")
            found.update(dict.fromkeys(opposites, replace(option, kind="off")))
        found.update(dict.fromkeys(names, option))
    return found


def parse(flags: Sequence[str], version: str) -> Given:
    """Read a command line. The first refusal ends the reading; what was read before it is kept."""
    options = table(version)
    values: dict[str, Any] = {}
    spans: list[tuple[str, int, int]] = []
    deprecated: list[str] = []
    at = 0
    while at < len(flags):
        word = flags[at]
        if not word.startswith("-") or word == "-":
            return Given(values, tuple(spans), _unknown(word, version), tuple(deprecated))
        name, equal, text = word.partition("=")
        option, refused = _find(name, options, version)
        if option is None:
            return Given(values, tuple(spans), refused, tuple(deprecated))
        end = at + 1
        while not equal and option.kind not in SWITCHES and end < len(flags) and _is_value(flags[end], options):
            end += 1
            if option.kind not in LISTS:
                break
        words = [text] if equal else list(flags[at + 1 : end])
        value, refused = _value(option, words, bool(equal), version)
        if refused is not None:
            return Given(values, tuple(spans), refused, tuple(deprecated))
        values[option.dest] = value
        spans.append((option.dest, at, end))
        if option.new:
            deprecated.append(f"{name} is deprecated, now {option.new}")
        at = end
    return Given(values, tuple(spans), None, tuple(deprecated))


def _is_value(word: str, options: Mapping[str, Option]) -> bool:
    """Whether argparse takes a word as a value: not a known option; a negative number, or a word with a space."""
    if not word.startswith("-") or word == "-":
        return True
    name = word.partition("=")[0]
    if name in options or (name.startswith("--") and any(spelling.startswith(name) for spelling in options)):
        return False
    try:
        float(word)
    except ValueError:
        return " " in word
    return True


def _find(name: str, options: Mapping[str, Option], version: str) -> tuple[Option | None, Refused | None]:
    if name in options:
        return options[name], None
    matches = sorted(
        spelling for spelling in options if name.startswith("--") and len(name) > 2 and spelling.startswith(name)
    )
    if len(matches) == 1:
        return options[matches[0]], None
    if matches:
        words = f"error: ambiguous option: {name} could match {', '.join(matches)}"
        return None, Refused("unknown-flag", words, f"write one of {', '.join(matches)}")
    return None, _unknown(name, version)


@cache
def spelled(name: str) -> frozenset[str]:
    """Every option that argparse of some modelled version could take a word for: itself, or those it is a prefix of."""
    found: set[str] = set()
    for version in _raw():
        options = table(version)
        same = {name} if name in options else {each for each in options if len(name) > 2 and each.startswith(name)}
        found |= same if name.startswith("--") else set()
    return frozenset(found)


def _unknown(name: str, version: str) -> Refused:
    return Refused("unknown-flag", f"error: unrecognized arguments: {name}", elsewhere(name, version))


def elsewhere(name: str, version: str) -> str:
    """Which version has an option, what it is called in this one, or the nearest spelling."""
    here = table(version)
    for old, new in RENAMED.items():
        if name == old and new in here:
            return f"it is called {new} in SGLang {version}"
        if name == new and old in here:
            return f"it is called {old} in SGLang {version}"
    having = [other for other in sorted(ARITHMETIC, key=release) if name in table(other)]
    if having:
        return f"SGLang {', '.join(having)} has it, {version} has not"
    return suggest(name, here, cutoff=0.75, otherwise="no modelled SGLang has such an option")


def _value(option: Option, words: list[str], equal: bool, version: str) -> tuple[Any, Refused | None]:
    label = "/".join(option.names)
    if option.kind in SWITCHES:
        if equal:
            return None, Refused(
                "invalid-flag-value", f"error: argument {label}: ignored explicit argument {words[0]!r}"
            )
        return option.kind == "switch", None
    if not words and option.kind == "many":
        return [], None
    if not words:
        if option.kind == "maybe":
            return True, None
        need = "at least one argument" if option.kind == "list" else "one argument"
        return None, Refused("invalid-flag-value", f"error: argument {label}: expected {need}", f"give {label} a value")
    converted = []
    for word in words:
        value, refused = _convert(option, word, label)
        if refused is not None:
            return None, refused
        converted.append(value)
    return (converted if option.kind in LISTS else converted[0]), None


def _convert(option: Option, word: str, label: str) -> tuple[Any, Refused | None]:
    try:
        value = convert(option.type, word)
    except ValueError as error:
        takes = "JSON" if option.type in ("loads", "json_list_type") else option.type.removeprefix("human_readable_")
        return None, Refused("invalid-flag-value", f"error: argument {label}: {error}", f"{label} takes {takes} values")
    if option.choices is not None and value not in option.choices:
        shown = ", ".join(repr(choice) for choice in option.choices)
        words = f"error: argument {label}: invalid choice: {word!r} (choose from {shown})"
        choices = [str(choice) for choice in option.choices]
        return None, Refused("invalid-flag-value", words, suggest(word, choices, otherwise=""), meant(word, choices))
    return value, None
