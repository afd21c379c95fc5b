"""The arguments line of a log, as data, and the SGLang version that its fields give away."""

from __future__ import annotations

import ast
import re
from typing import Any

_SECRET = re.compile(r"api_key|password|token$|secret|keyfile")
_VERSION = re.compile(r"\bsglang(?:\[\w+\])?[=-]{1,2}v?(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)", re.I)
# Fields of the argument dataclass that only one of the releases has; read from the sources of the four releases.
_FIELDS = (
    ("mamba_radix_cache_strategy=", "0.5.23"),
    ("tokenizer_backend=", "0.5.11"),
    ("speculative_dflash_block_size=", "0.5.11"),
    ("speculative_ngram_max_match_window_size=", "0.5.9"),
    ("enable_piecewise_cuda_graph=", "0.5.9"),
    ("disable_piecewise_cuda_graph=", "0.5.10"),
)


def parse_server_args(text: str) -> dict[str, Any]:
    """`…server_args=ServerArgs(a=1, b='x', …)` to a dict; cut lines give what is there. Secrets become "***"."""
    start = text.find("ServerArgs(")
    if start < 0:
        return {}
    found: dict[str, Any] = {}
    for part in _split(text[start + len("ServerArgs(") :]):
        name, sep, value = part.strip().partition("=")
        if not sep or not name.isidentifier():
            continue
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
        if _SECRET.search(name) and isinstance(found[name], str):
            found[name] = "***"
    return found


def _split(text: str) -> list[str]:
    """Split at commas outside quotes and brackets; stop at the bracket that closes the call."""
    parts, depth, quote, begin, skip = [], 0, "", 0, False
    for i, c in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip, quote = c == "\\", "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            if depth == 0:
                parts.append(text[begin:i])
                return parts
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [*parts, text[begin:]]


def stated_version(text: str) -> str | None:
    """A version that a line states outright (`sglang==0.5.11`, `sglang-0.5.11`)."""
    found = _VERSION.search(text)
    return found[1] if found else None


def implied_version(text: str) -> str | None:
    """The modelled release whose arguments line this is."""
    return next((version for marker, version in _FIELDS if marker in text), None)
