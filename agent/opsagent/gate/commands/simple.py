"""Pieces that checkers share: reading a command line by its grammar, and judging options and operands by what they mean."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Literal, cast

from opsagent.gate.argv import Checker, check, embedded, operators
from opsagent.gate.grammar import Given, Grammar, Parsed
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace
from opsagent_tools.tool import Tier

Operands = Literal["read", "tree", "meta", "write", "text", "none"]
"""What operands are: files whose contents are read, folders read whole, names only, files made, words, or not accepted."""


def apply(given: Sequence[Given], name: str, t: Trace) -> None:
    """What the options themselves do: values that are files or commands, options that demand a tier."""
    for each in given:
        value, meaning = each.value, each.option.meaning
        if each.option.tier:
            t.say(cast(Tier, each.option.tier), f"{name}.option", f"{name} {each.name}")
        if value is None:
            continue
        if each.option.tier in ("R3", "X") and re.search(r"[ |;&$`]", value):
            _code(value, t)
        if meaning == "read":
            paths.read(t, value)
        elif meaning == "write":
            paths.write(t, value)
        elif meaning == "cmd":
            line(value, t, f"{name} {each.name}")


def _code(text: str, t: Trace) -> None:
    """The value of an option that may run it: what is refused in any form is refused here too."""
    from opsagent.gate.commands.shells import text as shell_text

    shell_text(text, t)


def line(text: str, t: Trace, where: str) -> None:
    """A command that is given as one string, split by the program itself (not by a shell)."""
    try:
        check(shlex.split(text), t)
    except ValueError:
        t.say("R3", "shell.text", f"{where} runs text that we cannot read")


def unknown(parsed: Parsed, name: str, t: Trace, tier: Tier = "R2") -> None:
    """Options that the program's grammar does not have: a doubt."""
    if parsed.unknown:
        t.say(tier, f"{name}.unknown-option", f"{name} {parsed.unknown[0]} is not an option that we know")


def parse(argv: tuple[str, ...], rules: Grammar, t: Trace, *, doubt: Tier = "R2", skip: int = 0) -> Parsed:
    """Read a command line, apply its options, and check the operands (after the first `skip`) for shell operators."""
    parsed = rules.parse(argv[1:])
    unknown(parsed, argv[0], t, doubt)
    apply(parsed.given, argv[0], t)
    operators(parsed.operands[skip:], t)
    embedded(parsed.operands[skip:], t)
    return parsed


def operand(t: Trace, word: str, kind: Operands) -> None:
    """Judge one operand by what the program does with it."""
    if kind == "read":
        paths.read(t, word)
    elif kind == "tree":
        paths.read(t, word, recursive=True)
    elif kind == "meta":
        paths.metadata(t, word)
    elif kind == "write":
        paths.write(t, word)
    elif kind == "none":
        t.say("R2", "operand", f"{word!r} is an operand that we do not expect")


def program(rules: Grammar, operands: Operands = "read", *, skip: int = 0) -> Checker:
    """A checker from a grammar alone. The first `skip` operands are text (a pattern, a program of its own language)."""

    def run(argv: tuple[str, ...], t: Trace) -> None:
        parsed = parse(argv, rules, t, skip=skip)
        t.say("R0", "read", f"{argv[0]} only reads")
        for word in parsed.operands[skip:]:
            operand(t, word, operands)

    return run


def fixed(tier: Tier, rule: str, why: str) -> Checker:
    """A checker for programs that always mean the same, whatever their arguments."""

    def run(argv: tuple[str, ...], t: Trace) -> None:
        operators(argv[1:], t)
        paths.mentions(t, " ".join(argv[1:]))
        for word in argv[1:]:
            if re.search(r"[|;&$`]", word):
                _code(word.lstrip("!:+"), t)
        t.say(tier, f"{argv[0]}.{rule}", f"{argv[0]} {why}")

    return run
