"""What SGLang's options turn a word into: plain numbers, `8k` and `8Ki`, JSON; and argparse's words when they cannot.

Source: `human_readable_int`, `json_list_type` and `nullable_str` of sglang/srt/utils/common.py, 0.5.10 to 0.5.23 the same
(0.5.9 has no sizes with suffixes: its table says `int`).
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

THOUSANDS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
SIZE = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")


def convert(kind: str, word: str) -> Any:
    """The value of a word for an option of this type. ValueError carries what argparse says after `argument X: `."""
    if kind in ("int", "float"):
        try:
            return int(word) if kind == "int" else float(word)
        except ValueError as error:
            raise ValueError(f"invalid {kind} value: {word!r}") from error
    if kind == "human_readable_int":
        return size(word)
    if kind in ("loads", "json_list_type"):
        try:
            return json.loads(word)
        except ValueError as error:
            listed = f"Invalid JSON list: {word}. Please provide a valid JSON list."
            raise ValueError(listed if kind == "json_list_type" else f"invalid loads value: {word!r}") from error
    if kind == "nullable_str":
        return None if word in ("", "None") else word
    return word


def size(word: str) -> int:
    """A count as SGLang reads it: `8k` is 8000, `8Ki` is 8192, `1.5k` is 1500; suffixes are case-sensitive."""
    text = word.strip()
    match = SIZE.fullmatch(text)
    if match:
        number, suffix = match.groups()
        if suffix in THOUSANDS:
            return int(Decimal(number) * THOUSANDS[suffix])
        if "." in number:
            raise ValueError(
                f"Decimals are not allowed with IEC suffixes like '{suffix}'. Use an integer IEC value such as "
                f"'{int(Decimal(number))}{suffix}', or an SI value such as '{number}{suffix[0]}'."
            )
        return int(number) * BINARY[suffix]
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(
            f"Invalid integer value: '{text}'. Use a plain integer, SI suffixes (1k, 1M), or IEC suffixes (1Ki, 1Mi). "
            "Suffixes are case-sensitive."
        ) from error
