"""Programs that read and print text, where the grammar alone does not say which operands are files or are written."""

from __future__ import annotations

import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import apply, parse, unknown
from opsagent.gate.commands.tables import rules
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace


def grep(argv: tuple[str, ...], t: Trace) -> None:
    """The first operand is a pattern (any text); the others are files, or folders with -r."""
    parsed = rules(argv[0]).parse(argv[1:])
    unknown(parsed, argv[0], t)
    apply(parsed.given, argv[0], t)
    named = parsed.has("-e", "-f", "--regexp", "--file", "--files")
    found = parsed.operands if named else parsed.operands[1:]
    operators(found, t)
    deep = argv[0] in ("rgrep", "rg", "ag", "ack") or parsed.has("-r", "-R", "--recursive", "--dereference-recursive")
    deep = deep or "recurse" in parsed.values("-d", "--directories")
    t.say("R0", "read", f"{argv[0]} prints matching lines")
    include = parsed.values("--include", "-g", "--glob")
    for each in found:
        below = f"{each.rstrip('/')}/{paths.UNKNOWN}/{include[0].lstrip('!')}" if deep and len(include) == 1 else each
        paths.read(t, below, recursive=deep)
    if deep and not found:
        t.say("R2", "path.relative", "reads the whole folder in which it happens to run")


def jq(argv: tuple[str, ...], t: Trace) -> None:
    """jq and yq: the first operand is a program, which may ask for the environment or for files."""
    parsed = parse(argv, rules(argv[0]), t, skip=1)
    t.say("R0", "read", f"{argv[0]} prints parts of its input")
    named = parsed.has("-f", "--from-file")
    for code in [] if named else parsed.operands[:1]:
        if re.search(r"\$ENV\b|\benv\b|\bstrenv\b", code):
            t.say("R2", "environment.print", f"{argv[0]} reads the environment")
        paths.mentions(t, code)
    for each in parsed.operands if named else parsed.operands[1:]:
        paths.read(t, each)


def tr(argv: tuple[str, ...], t: Trace) -> None:
    parse(argv, rules("tr"), t, skip=2)
    t.say("R0", "read", "tr changes characters of its input")


def echo(argv: tuple[str, ...], t: Trace) -> None:
    operators(argv[1:], t)
    t.say("R0", "read", f"{argv[0]} prints its arguments")


def uniq(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("uniq"), t)
    t.say("R0", "read", "uniq prints lines")
    for each in parsed.operands[:1]:
        paths.read(t, each)
    for each in parsed.operands[1:]:
        paths.write(t, each)


def sort(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("sort"), t)
    t.say("R0", "read", "sort prints lines")
    for each in parsed.operands:
        if each.startswith("+") and each[1:2].isdigit():
            continue
        paths.read(t, each)


def split(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("split"), t)
    for each in parsed.operands[:1]:
        paths.read(t, each)
    paths.write(t, (parsed.operands[1:] or ["x"])[0] + "aa")


def less(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("less"), t)
    t.say("R0", "read", f"{argv[0]} prints files (there is no terminal to leave it from)")
    for each in parsed.operands:
        if each.startswith("+"):
            harmless = each[1:].isdigit() or each in ("+G", "+F") or each.startswith("+/")
            t.say("R0" if harmless else "R3", "less.command", f"less starts with {each}")
        else:
            paths.read(t, each)


def xxd(argv: tuple[str, ...], t: Trace) -> None:
    parsed = parse(argv, rules("xxd"), t)
    t.say("R0", "read", "xxd prints bytes")
    for each in parsed.operands[:1]:
        paths.read(t, each)
    for each in parsed.operands[1:]:
        paths.write(t, each)


GREPS = ("grep", "egrep", "fgrep", "zgrep", "rgrep", "xzgrep", "zegrep", "zfgrep", "bzgrep", "rg", "ag", "ack")
OWN = {
    "jq": jq, "yq": jq,
    "tr": tr, "uniq": uniq, "sort": sort, "split": split, "csplit": split, "xxd": xxd,
    **dict.fromkeys(("less", "more", "zless", "pg", "most"), less),
    **dict.fromkeys(GREPS, grep),
}  # fmt: skip
COMMANDS: dict[str, Checker] = {**OWN, "echo": echo, "printf": echo}
