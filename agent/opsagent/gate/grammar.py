"""Option grammars: how a program reads its own command line (clusters, abbreviations, `--`, `=`), as GNU getopt does.

A grammar is written as words: `-abc` are flags, `-n:` takes a value, `-i?` takes one only when attached, `--long`,
`--long:`,
`--long?`. After the colon the value's meaning: `:read`, `:write`, `:new`, `:cmd`, `:secret`; after `!` the tier that
the option demands: `--delete!R3`, `-o:write`, `-w:!R2`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

Takes = Literal["none", "value", "attached"]
WORD = re.compile(r"(--?[^:?!]+)(?:([:?])([a-z]*))?(?:!(R[0-3]|X))?")


@dataclass(frozen=True, slots=True)
class Option:
    """One option that a program knows."""

    name: str
    takes: Takes = "none"
    meaning: str = ""
    tier: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it was given; `value` is None for a flag."""

    name: str
    value: str | None
    option: Option


@dataclass(slots=True)
class Parsed:
    """A command line, read by its program's grammar."""

    given: list[Given] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        return any(g.name in names for g in self.given)

    def values(self, *names: str) -> list[str]:
        return [g.value or "" for g in self.given if g.name in names and g.value is not None]


@dataclass(frozen=True, slots=True)
class Grammar:
    """The options of one program. `posix`: options end at the first operand (wrappers, subcommands)."""

    options: dict[str, Option]
    posix: bool = False
    single: bool = False
    """Long options with one dash (`-name value`): no clusters."""

    def parse(self, args: tuple[str, ...] | list[str]) -> Parsed:
        parsed = Parsed()
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word == "--":
                parsed.operands += rest
                break
            if word == "-" or not word.startswith("-") or (word[:1] == "-" and not word[1:]):
                parsed.operands.append(word)
                if self.posix:
                    parsed.operands += rest
                    break
            elif word.startswith("--") or self.single:
                self._long(word, rest, parsed)
            else:
                self._cluster(word, rest, parsed)
        return parsed

    def _long(self, word: str, rest: list[str], parsed: Parsed) -> None:
        name, equals, value = word.partition("=")
        option = self._lookup(name)
        if option is None:
            parsed.unknown.append(word)
        elif option.takes == "none":
            if equals:
                parsed.unknown.append(word)
            parsed.given.append(Given(option.name, None, option))
        elif equals:
            parsed.given.append(Given(option.name, value, option))
        elif option.takes == "value":
            if not rest:
                parsed.unknown.append(word)
            parsed.given.append(Given(option.name, rest.pop(0) if rest else "", option))
        else:
            parsed.given.append(Given(option.name, None, option))

    def _lookup(self, name: str) -> Option | None:
        """Exact, else the one option of which this is a prefix (an ambiguous prefix is unknown)."""
        if name in self.options:
            return self.options[name]
        found = [o for key, o in self.options.items() if key.startswith(name) and key.startswith("--")]
        return found[0] if len(found) == 1 and name.startswith("--") and len(name) > 2 else None

    def _cluster(self, word: str, rest: list[str], parsed: Parsed) -> None:
        letters = word[1:]
        while letters:
            name, letters = f"-{letters[0]}", letters[1:]
            option = self.options.get(name)
            if option is None:
                parsed.unknown.append(word)
                return
            if option.takes == "none":
                parsed.given.append(Given(name, None, option))
                continue
            if letters or option.takes == "attached":
                parsed.given.append(Given(name, letters or None, option))
            else:
                if not rest:
                    parsed.unknown.append(word)
                parsed.given.append(Given(name, rest.pop(0) if rest else "", option))
            return


@cache
def grammar(text: str, *, posix: bool = False, single: bool = False) -> Grammar:
    """Read a grammar from its words. Raises ValueError for a word that is none."""
    options: dict[str, Option] = {}
    for word in text.split():
        found = WORD.fullmatch(word)
        if found is None:
            raise ValueError(f"not an option of a grammar: {word}")
        name, mark, meaning, tier = found.groups()
        takes: Takes = "value" if mark == ":" else "attached" if mark == "?" else "none"
        names = [name] if name.startswith("--") or single else [f"-{letter}" for letter in name[1:]]
        for each in names:
            options[each] = Option(each, takes, meaning or "", tier or "")
    return Grammar(options, posix, single)
