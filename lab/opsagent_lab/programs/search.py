"""grep, with the options that scripts use. Python's regular expressions stand in for POSIX ones."""

from __future__ import annotations

import re

from opsagent_lab.files import words
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.programs.options import read
from opsagent_lab.programs.text import chunks

GREP_LONG = {
    "ignore-case": "i", "invert-match": "v", "count": "c", "line-number": "n", "quiet": "q", "silent": "q",
    "extended-regexp": "E", "fixed-strings": "F", "perl-regexp": "P", "regexp=": "e", "recursive": "r", "no-filename": "h",
    "with-filename": "H", "files-with-matches": "l", "only-matching": "o", "word-regexp": "w", "line-regexp": "x",
    "max-count=": "m", "after-context=": "A", "before-context=": "B", "context=": "C", "no-messages": "s",
    "text": "a", "color?": "color", "include=": "include",
}  # fmt: skip


def _grep_patterns(process: Process) -> tuple[re.Pattern[str], dict[str, list[str]], list[str]]:
    options = read(process, "ivcnqEFPrRhHlowxsaG", "emABC", GREP_LONG, code=2)
    operands = list(options.operands)
    if "e" in options:
        patterns = options.given["e"]
    elif operands:
        patterns = [operands.pop(0)]
    else:
        process.write_err("Usage: grep [OPTION]... PATTERNS [FILE]...\nTry 'grep --help' for more information.\n")
        raise Exit(2)
    parts = []
    for pattern in "\n".join(patterns).split("\n"):
        if "F" in options or process.name == "fgrep":
            pattern = re.escape(pattern)
        elif not ({"E", "P"} & options.given.keys() or process.name == "egrep"):
            pattern = _basic(pattern)
        pattern = re.sub(r"\[\[:(alpha|digit|alnum|space):\]\]", lambda m: CLASSES[m.group(1)], pattern)
        parts.append(rf"\b(?:{pattern})\b" if "w" in options else rf"^(?:{pattern})$" if "x" in options else pattern)
    try:
        return re.compile("|".join(f"(?:{p})" for p in parts), re.I if "i" in options else 0), options.given, operands
    except re.error as problem:
        process.write_err(f"grep: Invalid regular expression: {problem}\n")
        raise Exit(2) from problem


CLASSES = {"alpha": "[A-Za-z]", "digit": "[0-9]", "alnum": "[A-Za-z0-9]", "space": r"\s"}


def _basic(pattern: str) -> str:
    """A basic regular expression as Python writes it: `\\|`, `\\(`, `\\+` are special, their bare forms are not."""
    out, at = "", 0
    while at < len(pattern):
        pair = pattern[at : at + 2]
        if len(pair) == 2 and pair[0] == "\\":
            out += pair[1] if pair[1] in "|(){}+?" else pair
            at += 2
            continue
        out += "\\" + pattern[at] if pattern[at] in "|(){}+?" else pattern[at]
        at += 1
    return out


def _grep(process: Process) -> int:
    pattern, given, operands = _grep_patterns(process)
    recursive = bool({"r", "R"} & given.keys())
    names: list[str] = []
    code, found = 0, False
    for name in operands or (["."] if recursive else ["-"]):
        if recursive and name != "-" and process.files.is_dir(process.path(name)):
            base = process.path(name)
            below = [p for p, n in process.files.walk(base) if n.kind == "file"]
            names += [name.rstrip("/") + p[len(base.rstrip("/")) :] for p in below]
        else:
            names.append(name)
    prefix = (len(names) > 1 or recursive or "H" in given) and "h" not in given
    for name in names:
        try:
            text = b"".join(chunks(process, name)).decode("utf-8", "replace")
        except OSError as problem:
            if "s" not in given:
                process.write_err(f"grep: {name}: {words(problem)}\n")
            code = 2
            continue
        found |= _grep_one(process, pattern, given, "(standard input)" if name == "-" else name, text, prefix)
        if found and "q" in given:
            return 0
    return code or (0 if found else 1)


def _grep_one(
    process: Process, pattern: re.Pattern[str], given: dict[str, list[str]], name: str, text: str, prefix: bool
) -> bool:
    lines = text.splitlines()
    hits = [n for n, line in enumerate(lines) if bool(pattern.search(line)) != ("v" in given)]
    if "m" in given:
        hits = hits[: int(given["m"][-1])]
    head = f"{name}:" if prefix else ""
    if "q" in given:
        return bool(hits)
    if "l" in given:
        process.write_out(f"{name}\n" if hits else "")
    elif "c" in given:
        process.write_out(f"{head}{len(hits)}\n")
    elif "o" in given:
        process.write_out(
            "".join(f"{head}{m.group(0)}\n" for n in hits for m in pattern.finditer(lines[n]) if m.group(0))
        )
    else:
        process.write_out(_context(lines, hits, given, name, prefix))
    return bool(hits)


def _context(lines: list[str], hits: list[int], given: dict[str, list[str]], name: str, prefix: bool) -> str:
    after = int(given.get("A", given.get("C", ["0"]))[-1])
    before = int(given.get("B", given.get("C", ["0"]))[-1])
    shown = sorted({n for hit in hits for n in range(max(0, hit - before), min(len(lines), hit + after + 1))})
    out, last = [], None
    for n in shown:
        mark = ":" if n in hits else "-"
        if (after or before) and last is not None and n != last + 1:
            out.append("--\n")
        number = f"{n + 1}{mark}" if "n" in given else ""
        out.append(f"{name + mark if prefix else ''}{number}{lines[n]}\n")
        last = n
    return "".join(out)


PROGRAMS: Registry = {"grep": _grep, "egrep": _grep, "fgrep": _grep}
