"""Reading typed flags out of the mapping that argparse leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opsagent_lab.engine.settings import Value

Note = Callable[[str], None]
"""Gets each line that SGLang prints while it resolves the arguments."""


def integer(values: Mapping[str, Value], name: str, default: int | None = None) -> int | None:
    value = values.get(name)
    return default if value is None else int(str(value))


def text(values: Mapping[str, Value], name: str, default: str | None = None) -> str | None:
    value = values.get(name)
    return default if value is None else str(value)


def on(values: Mapping[str, Value], name: str) -> bool:
    return bool(values.get(name))
