"""A new signature from a labelled log: its decisive line, generalised, and refused where it would raise a false alarm."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

from opsagent_tools.errors import InputError
from opsagent_tools.sglang.diagnosis.diagnose import diagnose
from opsagent_tools.sglang.diagnosis.pattern import Pattern
from opsagent_tools.sglang.diagnosis.scan import scan
from opsagent_tools.sglang.diagnosis.signature import knowledge

_VARIABLE = re.compile(
    r"'[^']{0,200}'|\"[^\"]{0,200}\"|`[^`]{0,200}`|(?:/[\w.+-]+){2,}/?|0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b|\d+(?:\.\d+)*(?:\s?[KMGT]i?B)?"
)
LONGEST = 160
CONTEXT_LINES = 30


@dataclass(frozen=True, slots=True)
class Learned:
    """`toml` is the signature, `example` its test: the lines around the decisive one, with the label as first line."""

    line: int
    pattern: str
    toml: str
    example: str


def learn(
    data: bytes, cause: str, *, line: int | None = None, healthy: Iterable[bytes] = (), known: str = ""
) -> Learned:
    """Make a signature of `cause` from a log that shows it.

    `line` (1-based) names the decisive line; left out, it is the first error that nothing explains. `healthy`: further
    logs on which the signature must not fire; `known`: TOML of what was learned before.
    Raises InputError: unknown cause, no decisive line, a line without words, or a false alarm.
    """
    if cause not in knowledge().causes:
        raise InputError(
            f"unknown cause: {cause}", where="--cause", hint="the causes are listed in docs/reference/causes.md"
        )
    text = data.decode("utf-8", "replace").split("\n")
    number = line or _decisive(data, known)
    if not 0 < number <= len(text):
        raise InputError(f"the log has no line {number}", where="--line")
    pattern = generalise(text[number - 1])
    try:
        Pattern.of(pattern)
    except ValueError as problem:
        raise InputError(
            f"line {number} has no words to recognise it by", where=f"line {number}", hint="name another with --line"
        ) from problem
    toml = f"[[cause.{cause}.sign]]\nline = '''{pattern}'''\ntier = 2\nended = true\n"
    _no_false_alarm(pattern, [packaged_healthy(), *healthy])
    found = diagnose(data, learned=known + toml)
    if found.cause != cause:
        raise InputError(
            f"with the new signature the log is still called {found.cause if found.cause != 'none' else found.verdict}",
            where=f"line {number}",
            hint="the decisive line may be another: name it with --line",
        )
    around = "\n".join(text[max(0, number - CONTEXT_LINES) : number + 3])
    return Learned(number, pattern, toml, f"=== {cause} | learned\n{around}\n")


def generalise(text: str) -> str:
    """A regular expression of a line: numbers, paths and quoted names may be others."""
    from opsagent_tools.sglang.log.head import parse_head

    body = text[parse_head(text).body :].strip()[:LONGEST]
    parts, end = [], 0
    for found in _VARIABLE.finditer(body):
        parts += [
            re.escape(body[end : found.start()]).replace("\\ ", " "),
            ".{1,200}?" if not found[0][0].isdigit() else r"[\d.]+\w*",
        ]
        end = found.end()
    return "".join([*parts, re.escape(body[end:]).replace("\\ ", " ")])


def packaged_healthy() -> bytes:
    """One line of each shape that healthy servers wrote."""
    return (files("opsagent_tools.sglang.diagnosis") / "healthy_lines.txt").read_bytes()


def _decisive(data: bytes, known: str) -> int:
    trouble = scan(data, knowledge(known)).trouble
    exceptions = [t.line for t in trouble if re.match(r"[\w.]*(?:Error|Exception)\b", t.quote)]
    if not trouble:
        raise InputError(
            "no line of the log looks like an error", where="--learn", hint="name the decisive one with --line"
        )
    return exceptions[0] if exceptions else trouble[0].line


def _no_false_alarm(pattern: str, healthy: Iterable[bytes]) -> None:
    expression = re.compile(pattern, re.I)
    for log in healthy:
        for number, line in enumerate(log.decode("utf-8", "replace").split("\n"), 1):
            if expression.search(line):
                raise InputError(
                    "refused: the signature would fire on a healthy server",
                    where=f"healthy line {number}: {line.strip()[:120]}",
                    hint="name a more telling line with --line",
                )  # fmt: skip
