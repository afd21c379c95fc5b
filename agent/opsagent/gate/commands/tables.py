"""The table of programs (`gate/data/*.txt`): option grammars, what operands mean, and tiers of verbs, as data.

cat: read                        names, and what operands are (see simple.Operands; `+1`: the first one is text)
  -AbeEnstTuv --show-all         the option grammar (see grammar.py)
systemctl: verbs
  -H:!R3
  R0 = status show               verbs by tier; verbs of two words are written `image/ls`; all others are R3
sort: own                        a checker in code; only the grammar is here
mkfs: R3 makes a file system     always this tier, and why
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import cast

from opsagent.call import TIERS
from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import Operands, fixed, parse, program
from opsagent.gate.grammar import Grammar, Parsed, grammar
from opsagent.gate.trace import Trace
from opsagent_tools.tool import Tier

HEAD = re.compile(r"([^:=]+): *(.*)")
VERBS = re.compile(r" +(R[0-3]|X) = (.*)")


@dataclass(slots=True)
class Entry:
    """One block of the table."""

    names: list[str]
    kind: str
    options: str = ""
    verbs: dict[str, Tier] = field(default_factory=dict)

    @property
    def grammar(self) -> Grammar:
        flags = self.options.split()
        options = " ".join(word for word in flags if word not in ("single", "posix"))
        return grammar(options, posix="posix" in flags, single="single" in flags)


def read(text: str) -> list[Entry]:
    """Read a table. Raises ValueError with the line that is wrong."""
    entries: list[Entry] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split(" # ")[0].rstrip()
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            head = HEAD.fullmatch(line)
            if head is None:
                raise ValueError(f"line {number}: {line}")
            entries.append(Entry(head[1].split(), head[2]))
        elif found := VERBS.fullmatch(line):
            entries[-1].verbs |= {verb: cast(Tier, found[1]) for verb in found[2].split()}
        else:
            entries[-1].options += " " + line.strip()
    return entries


@cache
def entries() -> dict[str, Entry]:
    """Program name → its block, of all tables."""
    found: dict[str, Entry] = {}
    folder = files("opsagent.gate") / "data"
    for name in sorted(each.name for each in folder.iterdir() if each.name.endswith(".txt")):
        for entry in read((folder / name).read_text(encoding="utf-8")):
            for each in entry.names:
                if each in found:
                    raise ValueError(f"{name}: {each} is there twice")
                found[each] = entry
    return found


def rules(name: str) -> Grammar:
    """The option grammar of a program that has a checker in code."""
    return entries()[name].grammar


def verb_of(words: list[str], verbs: dict[str, Tier]) -> str:
    """The verb of a command line: two words when the table has them so, else one."""
    pair = "/".join(words[:2])
    return pair if pair in verbs else (words[0] if words else "")


def verb(argv: tuple[str, ...], t: Trace, *, bare: Tier = "R0") -> Parsed:
    """Judge a program by its verb and options; returns the command line for further checks. `bare`: no verb given."""
    entry = entries()[argv[0]]
    parsed = parse(argv, entry.grammar, t)
    name = verb_of(parsed.operands, entry.verbs)
    tier = entry.verbs.get(name, "R3") if name else bare
    words = name.replace("/", " ")
    known = name in entry.verbs or not name
    t.say(tier, f"{argv[0]}.{words.replace(' ', '-') if known else 'unknown-verb'}", f"{argv[0]} {words}".strip())
    return parsed


def checkers() -> dict[str, Checker]:
    """Checkers of all programs that the table describes wholly."""
    found: dict[str, Checker] = {}
    for name, entry in entries().items():
        if entry.kind == "own":
            continue
        tier, _, why = entry.kind.partition(" ")
        if tier in TIERS:
            found[name] = _always(entry, tier, why) if entry.options else fixed(tier, "always", why)
        elif entry.kind == "verbs":
            found[name] = _verbs
        else:
            kind, _, skip = entry.kind.partition("+")
            found[name] = program(entry.grammar, cast(Operands, kind), skip=int(skip or 0))
    return found


def _verbs(argv: tuple[str, ...], t: Trace) -> None:
    verb(argv, t)


def _always(entry: Entry, tier: Tier, why: str) -> Checker:
    def run(argv: tuple[str, ...], t: Trace) -> None:
        parsed = parse(argv, entry.grammar, t)
        operators(parsed.operands, t)
        t.say(tier, f"{argv[0]}.always", f"{argv[0]} {why}")

    return run
