"""awk: its program may run commands, write files and read others. Tokens tell; what is not a token is a doubt."""

from __future__ import annotations

import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.shells import opaque
from opsagent.gate.commands.simple import apply, line, unknown
from opsagent.gate.commands.tables import rules
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace

TOKEN = re.compile(
    r"(?P<string>\"(?:\\.|[^\"\\])*\")|(?P<comment>\#[^\n]*)|(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)"
    r"|(?P<name>[A-Za-z_]\w*(?:::\w+)?)"
    r"|(?P<op>\|&|\|\||&&|>>|>=|<=|==|!=|!~|\+\+|--|\+=|-=|\*=|/=|%=|\^=|\*\*=?|[-+*/%^!<>=~?:,;(){}\[\]$|&])"
    r"|(?P<at>@)|(?P<space>[ \t\r\\]+|\n)",
    re.DOTALL,
)
REGEX = re.compile(r"/(?:\\.|\[(?:\\.|\]?[^\]\\])*\]|[^/\\\n])*/")
VALUE = ("string", "number", "name")


def tokens(code: str) -> list[tuple[str, str]]:
    """Kinds and texts. Raises ValueError where no token begins."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(code):
        last = next(((k, v) for k, v in reversed(found) if k not in ("space", "comment")), ("", ""))
        operand = last[0] in VALUE or last[1] in (")", "]", "$", "++", "--") or last[0] == "regex"
        if last[0] == "name" and last[1] in ("print", "printf", "return", "in", "case", "getline"):
            operand = False
        match = REGEX.match(code, at) if code[at] == "/" and not operand else TOKEN.match(code, at)
        if match is None:
            raise ValueError(f"awk: {code[at : at + 10]!r}")
        found.append(("regex" if match.re is REGEX else str(match.lastgroup), match.group()))
        at = match.end()
    return [token for token in found if token[0] != "comment" and not (token[0] == "space" and token[1] != "\n")]


def program(code: str, t: Trace) -> None:
    """Judge an awk program."""
    try:
        found = tokens(code)
    except ValueError as error:
        t.say("R3", "awk.unreadable", str(error))
        return
    printing, depth = False, 0
    for index, (kind, text) in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else ("", "")
        if kind == "name":
            _name(text, found[index + 1 : index + 5], t)
            if text in ("print", "printf"):
                printing, depth = True, 0
        elif text in ("(", "[") and printing:
            depth += 1
        elif text in (")", "]") and printing:
            depth -= 1
        elif text in (";", "}", "\n"):
            printing = False
        elif text in ("|", "|&"):
            _pipe(found[index - 1], after, t)
        elif text in (">", ">>") and printing and depth <= 0:
            _redirect(after, t)
        elif kind == "at":
            t.say("R3", "awk.code", "awk loads code or calls a computed function")
    if t.tier in ("R3", "X"):
        opaque(code, t)
    if any(token in (("name", "getline"), ("name", "ARGV")) for token in found):
        paths.mentions(t, code)
    t.say("R0", "read", "awk prints parts of its input")


def _name(text: str, ahead: list[tuple[str, str]], t: Trace) -> None:
    if text == "system":
        t.say("R3", "awk.command", "awk runs a command")
    elif text == "getline":
        at = next((index for index, token in enumerate(ahead) if token[1] == "<"), None)
        source = ahead[at + 1] if at is not None and at + 1 < len(ahead) else None
        if source is not None and source[0] == "string":
            paths.read(t, source[1][1:-1])
        elif at is not None:
            t.say("R2", "awk.getline", "awk reads a file whose name it computes")
    elif text in ("ARGV", "ARGC"):
        t.say("R2", "awk.argv", "awk chooses its files itself")
    elif text == "ENVIRON":
        t.say("R2", "environment.print", "awk reads the environment")
    elif text == "PROCINFO":
        t.say("R0", "read", "awk reads its own state")


def _pipe(before: tuple[str, str], after: tuple[str, str], t: Trace) -> None:
    """`print | "sort -n"` and `"date" | getline`: a literal command without shell syntax is judged like any other."""
    literal = after if after[0] == "string" else before if after[1] == "getline" else ("", "")
    if literal[0] == "string" and re.fullmatch(r"[\w ./,:=-]+", literal[1][1:-1]):
        line(literal[1][1:-1], t, "awk")
    else:
        t.say("R3", "awk.command", "awk pipes to or from a command")


def _redirect(after: tuple[str, str], t: Trace) -> None:
    if after[0] == "string":
        paths.write(t, after[1][1:-1])
    else:
        t.say("R3", "path.unknown", "awk writes a file whose name it computes")


def awk(argv: tuple[str, ...], t: Trace) -> None:
    parsed = rules(argv[0]).parse(argv[1:])
    unknown(parsed, argv[0], t, "R3")
    apply(parsed.given, argv[0], t)
    codes = parsed.values("-e", "--source")
    rest = list(parsed.operands)
    if not codes and not parsed.has("-f", "--file", "-E", "--exec") and rest:
        codes = [rest.pop(0)]
    for code in codes:
        program(code, t)
    for _, value in (each.partition("=")[::2] for each in parsed.values("-v", "--assign")):
        if "\n" in value:
            t.say("R2", "awk.value", "a value with line breaks")
    operators(rest, t)
    for each in rest:
        if not re.fullmatch(r"[A-Za-z_]\w*=.*", each):
            paths.read(t, each)
    if not codes and not t.findings:
        t.say("R3", "awk.unreadable", "awk without a program")


COMMANDS: dict[str, Checker] = dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), awk)
