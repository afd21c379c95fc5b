"""Values and outputs as people read them: JSON that uses its lines well, text without colours and overprinting."""

from __future__ import annotations

import json
import re
from typing import Any

from opsagent.fence import neutral

WIDTH = 110
DEEPEST = 12
"""Levels of nesting that get lines of their own."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ENDS = re.compile(r"\r*\n|\r")


def plain(text: str) -> str:
    """An output of a program: colours go, carriage returns end lines, everything else that could deceive is written out."""
    return neutral(_ENDS.sub("\n", _COLOUR.sub("", text)))


def readable(value: Any) -> str:
    """JSON for people: what fits on a line is on one line, and a text of several lines is shown as its lines.

    It is not meant to be parsed: `opsagent show RUN EVENT --json` prints the event itself.
    """
    lines: list[str] = []
    _write(value, 0, "", "", lines)
    return neutral("\n".join(lines))


def _write(value: Any, depth: int, name: str, comma: str, out: list[str]) -> None:
    """Append the lines of one value; `name` is `"key": ` in front of it."""
    indent = "  " * depth
    if isinstance(value, str):
        body = value.rstrip("\n")
        first, *rest = [json.dumps(line, ensure_ascii=False)[1:-1] for line in body.split("\n")]
        lines = [f'{indent}{name}"{first}', *(f"{indent}    {line}" for line in rest)]
        lines[-1] += "\\n" * (len(value) - len(body)) + f'"{comma}'
        out.extend(lines)
        return
    flat = json.dumps(value, ensure_ascii=False)
    fits = len(indent) + len(name) + len(flat) <= WIDTH
    if not value or fits or depth >= DEEPEST or not isinstance(value, dict | list):
        out.append(f"{indent}{name}{flat}{comma}")
        return
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value) and "\\n" not in flat:
        out.append(f"{indent}{name}[")
        out += [f"{indent}  {line}" for line in _filled([json.dumps(item, ensure_ascii=False) for item in value])]
        out.append(f"{indent}]{comma}")
        return
    if isinstance(value, dict):
        left, right = "{", "}"
        parts = [(json.dumps(str(key), ensure_ascii=False) + ": ", item) for key, item in value.items()]
    else:
        left, right, parts = "[", "]", [("", item) for item in value]
    out.append(f"{indent}{name}{left}")
    for number, (inner, item) in enumerate(parts, start=1):
        _write(item, depth + 1, inner, "," if number < len(parts) else "", out)
    out.append(f"{indent}{right}{comma}")


def _filled(words: list[str]) -> list[str]:
    """A list of plain values over as few lines as they need: an argv reads like one."""
    lines = [""]
    for number, word in enumerate(words, start=1):
        word += "," if number < len(words) else ""
        if lines[-1] and len(lines[-1]) + 1 + len(word) > WIDTH - 10:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines
