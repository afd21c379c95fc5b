"""The text of an SSH configuration with its `Include` lines followed: paramiko does not know them, people use them.

As OpenSSH does it (ssh_config(5)): patterns are globs, relative ones lie beside the configuration (`~/.ssh`, `/etc/ssh`),
files come in the order of their names, what is missing counts as empty, and after an Include the lines around it go on. One
inside a block for some hosts would hold for these hosts only; that cannot be said in one text, so it is left out.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path

DEEPEST = 16
"""Includes within includes, as in OpenSSH."""
LINE = re.compile(r"\s*(?P<key>[A-Za-z]+)(?:\s*=\s*|\s+)(?P<rest>.*?)\s*")
EVERYBODY = "Host *"


def config_text(path: Path, folder: Path | None = None, depth: int = 0) -> str:
    """The whole text; `folder` is where relative patterns lie.

    Raises OSError or UnicodeDecodeError for the file itself; an included one that fails is left out.
    """
    block, made = EVERYBODY, []
    for text in path.read_text(encoding="utf-8").splitlines():
        found = LINE.fullmatch(text)
        key = found["key"].lower() if found else ""
        if key in ("host", "match"):
            block = text.strip()
        if found is None or key != "include":
            made.append(text)
        elif depth < DEEPEST and _for_everybody(block):
            for each in _named(found["rest"], folder or path.parent):
                made += [config_text(each, folder or path.parent, depth + 1), block]
    return "\n".join(made) + "\n"


def _for_everybody(block: str) -> bool:
    words = block.replace("=", " ").lower().split()
    return words in (["host", "*"], ["match", "all"])


def _named(patterns: str, folder: Path) -> list[Path]:
    """The files that the patterns of one line name."""
    found: list[Path] = []
    for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', patterns):
        names = glob.glob(str(Path(quoted or bare).expanduser()), root_dir=folder)  # noqa: PTH207 - takes any text
        found += [path for path in (folder / name for name in sorted(names)) if _readable(path)]
    return found


def _readable(path: Path) -> bool:
    try:
        return path.is_file() and path.read_text(encoding="utf-8") is not None
    except (OSError, UnicodeDecodeError):
        return False


def names_of(text: str) -> list[str]:
    """The plain names of its `Host` lines, without patterns."""
    found = []
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if match and match["key"].lower() == "host":
            found += [name.strip('"') for name in match["rest"].split() if not set(name) & set("*?!#")]
    return found
