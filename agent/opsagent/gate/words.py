"""Lists of words that are data: `gate/data/*.words`, sections with a name and a colon, words indented below."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def words(file: str, section: str) -> frozenset[str]:
    """The words of one section. Raises KeyError when there is none."""
    text = (files("opsagent.gate") / "data" / f"{file}.words").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith(" "):
            found[name] += line.split()
        elif line.endswith(":"):
            name = line[:-1]
            found[name] = []
    return frozenset(found[section])
