"""Hashed locks: every package of one SGLang version, with the sha256 of each of its files (CPython 3.12, Linux x86-64).

Made with `uv pip compile --generate-hashes --python-version 3.12 --python-platform x86_64-manylinux_2_35` from the one line
`sglang==VERSION`. An environment that is installed from one is the same everywhere, whatever the index offers meanwhile.
"""

from __future__ import annotations

import re
from importlib.resources import files

PYTHON = "3.12"
GLIBC = {"0.5.11": "2.34", "0.5.23": "2.34"}
"""Least glibc of SGLang's own wheel (its platform tag); 2.28, that of torch, where it is not said."""


def versions() -> list[str]:
    """The SGLang versions that have a lock."""
    names = (item.name for item in files("opsagent_tools.locks").iterdir())
    return sorted(name[len("sglang-") : -len(".txt")] for name in names if name.startswith("sglang-"))


def text(version: str) -> str:
    return (files("opsagent_tools.locks") / f"sglang-{version}.txt").read_text(encoding="utf-8")


def packages(lock: str) -> dict[str, str]:
    """Names and versions that a lock pins."""
    return dict(re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", lock, re.M))
