"""Pages whose ```console blocks are run: `$ ` begins a command, the lines below it are what it must print, in shape."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

EXIT = re.compile(r"\s+# exit (\d+)$")


@dataclass(frozen=True)
class Step:
    """One command and the lines that are quoted below it (`…` alone stands for any)."""

    line: int
    argv: tuple[str, ...]
    code: int
    quoted: tuple[str, ...]


def steps(page: Path) -> list[Step]:
    """The commands of a page, in order."""
    found: list[Step] = []
    inside = False
    for number, text in enumerate(page.read_text("utf-8").splitlines(), 1):
        if text.startswith("```"):
            inside = text == "```console"
        elif inside and text.startswith("$ "):
            code = EXIT.search(text)
            found.append(Step(number, tuple(shlex.split(EXIT.sub("", text[2:]))), int(code[1]) if code else 0, ()))
        elif inside and text.strip() and text.strip() != "…":
            last = found[-1]
            found[-1] = Step(last.line, last.argv, last.code, (*last.quoted, text))
    return found


def shape(text: str) -> str:
    """The text without what differs from run to run: numbers, ids, hashes, times, the end of clipped lines."""
    text = re.sub(r"\b(run|resume|approve|head) [0-9a-f]{4,64}\b", r"\1 ID", text)
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "HASH", text)
    text = re.sub(r"\d[\d,.:TZ-]*\d|\d", "N", text)
    return " ".join(text.split())


def missing(step: Step, printed: str) -> list[str]:
    """The quoted lines that are not printed, in this order; a quoted line may be a part of a printed one."""
    lines = iter([shape(line) for line in printed.splitlines()])
    return [text for text in step.quoted if not any(shape(text) in line for line in lines)]
