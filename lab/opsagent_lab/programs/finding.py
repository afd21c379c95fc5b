"""find, with the tests that scripts use; an unknown one is an error."""

from __future__ import annotations

import fnmatch
import posixpath
import re

from opsagent_lab.files import on_disk, words
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.state import Node


def _find(process: Process) -> int:
    args = process.args
    starts = []
    while args and not args[0].startswith(("-", "(", "!")):
        starts.append(args.pop(0))
    tests, actions, depth = _find_tests(process, args)
    code = 0
    for start in starts or ["."]:
        base = process.path(start)
        try:
            entries = list(process.files.walk(base))
        except OSError as problem:
            code = process.fail(f"'{start}': {words(problem)}")
            continue
        for path, node in entries:
            below = path[len(base) :] if base != "/" else path
            level = below.strip("/").count("/") + 1 if below.strip("/") else 0
            if not depth[0] <= level <= depth[1]:
                continue
            shown = start.rstrip("/") + ("/" if below and not below.startswith("/") else "") + below if below else start
            if all(_matches(process, node, path, shown, *test) for test in tests):
                process.write_out(_printed(actions, node, shown, below))
    return code


def _find_tests(process: Process, args: list[str]) -> tuple[list[tuple[str, str]], str, tuple[int, int]]:
    tests, action, low, high = [], "%p\n", 0, 10**6
    while args:
        item = args.pop(0)
        known = (
            "-name",
            "-iname",
            "-type",
            "-size",
            "-path",
            "-newer",
            "-mmin",
            "-maxdepth",
            "-mindepth",
            "-printf",
            "-links",
        )
        if item in known:
            if not args:
                process.write_err(f"find: missing argument to `{item}'\n")
                raise Exit(1)
            value = args.pop(0)
            if item == "-maxdepth":
                high = int(value)
            elif item == "-mindepth":
                low = int(value)
            elif item == "-printf":
                action = value
            else:
                tests.append((item, value))
        elif item == "-print0":
            action = "%p\0"
        elif item == "-empty":
            tests.append((item, ""))
        elif item not in ("-print", "-xdev", "-L"):
            process.write_err(f"find: unknown predicate `{item}'\n")
            raise Exit(1)
    return tests, action, (low, high)


def _matches(process: Process, node: Node, path: str, shown: str, test: str, value: str) -> bool:
    if test in ("-name", "-iname"):
        name = posixpath.basename(path)
        pair = (name.lower(), value.lower()) if test == "-iname" else (name, value)
        return fnmatch.fnmatchcase(*pair)
    if test == "-path":
        return fnmatch.fnmatchcase(shown, value)
    if test == "-type":
        return {"file": "f", "dir": "d", "link": "l", "char": "c"}[node.kind] in value.split(",")
    if test == "-empty":
        return node.kind == "file" and not node.size
    if test == "-newer":
        other = process.files.find(process.path(value))
        return other is not None and node.mtime > other.mtime
    sign, number = (value[0], value[1:]) if value[0] in "+-" else ("", value)
    if test == "-mmin":
        have = int((process.now - node.mtime) // 60)
    else:
        unit = {"c": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(number[-1], 512)
        number = number.rstrip("ckMGb")
        have = -(-node.size // unit)
    return have > int(number) if sign == "+" else have < int(number) if sign == "-" else have == int(number)


def _printed(form: str, node: Node, shown: str, below: str) -> str:
    kind = {"file": "f", "dir": "d", "link": "l", "char": "c"}[node.kind]
    fields = {"p": shown, "f": posixpath.basename(shown), "s": str(node.size), "y": kind, "P": below.lstrip("/"),
    "m": f"{node.mode:o}",
              "b": str(on_disk(node) // 512), "T@": f"{node.mtime:.10f}", "l": node.target, "%": "%"}  # fmt: skip
    text = re.sub(r"%(T@|[pfsyPmbl%])", lambda m: fields[m.group(1)], form)
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("\\0", "\0")


PROGRAMS: Registry = {"find": _find}
