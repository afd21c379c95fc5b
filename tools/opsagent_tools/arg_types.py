"""Types of arguments that several tools share."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema


def flag_words(value: Any) -> Any:
    """Flags as a list of words, from a list or from one shell-like string."""
    if isinstance(value, str):
        return shlex.split(value)
    return value


Flags = Annotated[
    list[str],
    BeforeValidator(flag_words),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]
"""SGLang's own flags: `["--tp-size", "2"]` or `"--tp-size 2"`."""

ModelRef = str | dict[str, Any]
"""A model: the path of its directory on the host, or the whole result of read_config."""


def model_path(model: ModelRef) -> str:
    """The directory of a model. Raises ValueError when a result does not say it."""
    if isinstance(model, str):
        return model
    for key in ("path", "model_path", "dir"):
        if isinstance(model.get(key), str):
            return str(model[key])
    raise ValueError("the model has no `path`: give the result of read_config, or the path itself")


def option(words: Sequence[str], *names: str) -> str | None:
    """Value of an option, `--name value` or `--name=value`; the last one counts, as in argparse."""
    found = None
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else (words[number + 1] if number + 1 < len(words) else None)
    return found
