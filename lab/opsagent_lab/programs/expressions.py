"""`test` and `[`: the conditions of shell scripts."""

from __future__ import annotations

from collections.abc import Callable

from opsagent_lab.program import Process, Registry
from opsagent_lab.state import Node

BINARY = ("=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot")
NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


class _Bad(Exception):
    """Control signal: the expression is not one."""


def test(process: Process, argv: list[str], complain: Callable[[str], None]) -> int:
    """0 true, 1 false, 2 not an expression (said through `complain`)."""
    args = argv[1:]
    if argv[0] == "[":
        if not args or args[-1] != "]":
            complain("[: missing `]'")
            return 2
        args = args[:-1]
    try:
        value, rest = _or(process, args)
        if rest:
            raise _Bad("too many arguments")
    except _Bad as problem:
        complain(f"{argv[0]}: {problem}")
        return 2
    return 0 if value else 1


def _or(process: Process, args: list[str]) -> tuple[bool, list[str]]:
    value, rest = _and(process, args)
    while rest and rest[0] == "-o":
        other, rest = _and(process, rest[1:])
        value = value or other
    return value, rest


def _and(process: Process, args: list[str]) -> tuple[bool, list[str]]:
    value, rest = _term(process, args)
    while rest and rest[0] == "-a":
        other, rest = _term(process, rest[1:])
        value = value and other
    return value, rest


def _term(process: Process, args: list[str]) -> tuple[bool, list[str]]:
    if not args:
        return False, []
    if args[0] == "!" and len(args) > 1:
        value, rest = _term(process, args[1:])
        return not value, rest
    if len(args) >= 3 and args[1] in BINARY:
        return _binary(process, args[0], args[1], args[2]), args[3:]
    if len(args) >= 2 and len(args[0]) == 2 and args[0][0] == "-":
        return _unary(process, args[0], args[1]), args[2:]
    return bool(args[0]), args[1:]


def _binary(process: Process, left: str, op: str, right: str) -> bool:
    if op in ("=", "=="):
        return left == right
    if op == "!=":
        return left != right
    if op in ("-nt", "-ot"):
        a, b = (process.files.find(process.path(x)) for x in (left, right))
        times = (a.mtime if a else -1.0, b.mtime if b else -1.0)
        return times[0] > times[1] if op == "-nt" else times[0] < times[1]
    for text in (left, right):
        if not text.lstrip("-").isdigit():
            raise _Bad(f"{text}: integer expression expected")
    return NUMBERS[op](int(left), int(right))


def _unary(process: Process, op: str, text: str) -> bool:
    if op in ("-n", "-z"):
        return bool(text) == (op == "-n")
    if op == "-t":
        return False
    node = process.files.find(process.path(text), follow=op not in ("-h", "-L"))
    checks: dict[str, Callable[[Node], bool]] = {
        "-e": lambda _n: True,
        "-a": lambda _n: True,
        "-f": lambda n: n.kind == "file",
        "-d": lambda n: n.kind == "dir",
        "-c": lambda n: n.kind == "char",
        "-b": lambda _n: False,
        "-h": lambda n: n.kind == "link",
        "-L": lambda n: n.kind == "link",
        "-s": lambda n: n.size > 0,
        "-r": lambda _n: True,
        "-w": lambda _n: True,
        "-x": lambda n: n.kind == "dir" or bool(n.mode & 0o111),
    }
    if op not in checks:
        raise _Bad(f"{op}: unary operator expected")
    return node is not None and checks[op](node)


def _program(process: Process) -> int:
    return test(process, [process.name, *process.args], lambda text: process.write_err(f"{text}\n"))


PROGRAMS: Registry = {"test": _program, "[": _program}
