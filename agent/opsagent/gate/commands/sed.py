"""sed: its script may write files, read others and run commands (`w`, `r`, `e`, flags of `s`). Read command by command."""

from __future__ import annotations

import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import apply, unknown
from opsagent.gate.commands.tables import rules
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace

ADDRESS = re.compile(r"\s*(?:\d+(?:~\d+)?|\$|\+\d+|~\d+)")


class _Reader:
    """A cursor over the script."""

    def __init__(self, code: str) -> None:
        self.code, self.at = code, 0

    @property
    def here(self) -> str:
        return self.code[self.at : self.at + 1]

    def skip(self, letters: str) -> None:
        while self.here and self.here in letters:
            self.at += 1

    def until(self, end: str) -> str:
        """Text up to an unescaped `end` (not inside brackets); raises ValueError when it does not come."""
        begin, bracket = self.at, False
        while self.here:
            if self.here == "\\":
                self.at += 2
                continue
            if self.here == "[" and not bracket:
                bracket = True
                self.at += 2 if self.code[self.at + 1 : self.at + 2] in ("]", "^") else 1
                continue
            if self.here == "]":
                bracket = False
            if self.here == end and not bracket:
                self.at += 1
                return self.code[begin : self.at - 1]
            self.at += 1
        raise ValueError("sed: an expression does not end")

    def line(self) -> str:
        end = self.code.find("\n", self.at)
        end = len(self.code) if end < 0 else end
        text, self.at = self.code[self.at : end], end
        return text

    def plain_until(self, end: str) -> str:
        """Like `until`, where brackets mean nothing (the replacement, and `y`)."""
        begin = self.at
        while self.here:
            if self.here == "\\":
                self.at += 2
            elif self.here == end:
                self.at += 1
                return self.code[begin : self.at - 1]
            else:
                self.at += 1
        raise ValueError("sed: an expression does not end")


def script(code: str, t: Trace) -> None:
    """Judge a sed script."""
    reader = _Reader(code)
    try:
        while reader.here:
            _command(reader, t)
    except ValueError as error:
        t.say("R3", "sed.unreadable", str(error))


def _address(reader: _Reader) -> None:
    found = ADDRESS.match(reader.code, reader.at)
    if found:
        reader.at = found.end()
    elif reader.here == "/":
        reader.at += 1
        reader.until("/")
    elif reader.here == "\\" and reader.at + 1 < len(reader.code):
        end = reader.code[reader.at + 1]
        reader.at += 2
        reader.until(end)
    reader.skip("IM")


def _command(reader: _Reader, t: Trace) -> None:
    reader.skip(" \t\n;")
    _address(reader)
    reader.skip(" \t")
    if reader.here == ",":
        reader.at += 1
        reader.skip(" \t")
        _address(reader)
    reader.skip(" \t!")
    name = reader.here
    reader.at += 1
    if name in ("", "}", "{", "=", "d", "D", "g", "G", "h", "H", "n", "N", "p", "P", "x", "z", "F"):
        return
    if name in ("q", "Q", "l", "L"):
        reader.skip(" 0123456789")
    elif name == "s":
        _substitute(reader, t)
    elif name == "y":
        end = reader.here
        reader.at += 1
        reader.plain_until(end)
        reader.plain_until(end)
    elif name in ("b", "t", "T", ":"):
        while reader.here not in ("", "\n", ";", "}"):
            reader.at += 1
    elif name in ("a", "i", "c"):
        while reader.line().endswith("\\") and reader.here:
            reader.at += 1
    elif name in ("w", "W"):
        _write(reader.line(), t)
    elif name in ("r", "R"):
        paths.read(t, reader.line().strip())
    elif name == "e":
        reader.line()
        t.say("R3", "sed.command", "sed runs a command")
    elif name == "#":
        reader.line()
    else:
        raise ValueError(f"sed: {name!r} is not a command that we know")


def _write(place: str, t: Trace) -> None:
    if place.strip() not in ("/dev/stdout", "/dev/stderr"):
        paths.write(t, place.strip())


def _substitute(reader: _Reader, t: Trace) -> None:
    end = reader.here
    reader.at += 1
    reader.until(end)
    reader.plain_until(end)
    while reader.here not in ("", "\n", ";", "}", "#"):
        flag = reader.here
        reader.at += 1
        if flag == "w":
            _write(reader.line(), t)
        elif flag == "e":
            t.say("R3", "sed.command", "sed runs what it makes")
        elif flag not in "gpiImM0123456789 \t":
            raise ValueError(f"sed: {flag!r} is not a flag that we know")


def sed(argv: tuple[str, ...], t: Trace) -> None:
    parsed = rules("sed").parse(argv[1:])
    unknown(parsed, "sed", t, "R3")
    apply(parsed.given, "sed", t)
    codes = parsed.values("-e", "--expression")
    rest = list(parsed.operands)
    if not codes and not parsed.has("-f", "--file") and rest:
        codes = [rest.pop(0)]
    script("\n".join(codes), t)
    operators(rest, t)
    t.say("R0", "read", "sed prints changed text")
    for each in rest:
        paths.read(t, each)
        if parsed.has("-i", "--in-place"):
            paths.write(t, each, what="changes in place")
            if not any(paths.owned(t, place) for place in paths.resolved(t, each)):
                t.say("R2", "sed.in-place", f"changes {each}, which this run did not make")
    for suffix in parsed.values("-i", "--in-place"):
        if "/" in suffix:
            t.say("R3", "sed.backup", "the backups go to another folder")


COMMANDS: dict[str, Checker] = {"sed": sed}
