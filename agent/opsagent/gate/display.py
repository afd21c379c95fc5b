"""Text of others on our screen: control, bidi and zero-width characters are shown as what they are, never obeyed."""

from __future__ import annotations

import unicodedata

KEPT = frozenset(" ")


def hidden(char: str) -> bool:
    """Whether a character is invisible, moves the cursor, or changes the order of others."""
    if char in KEPT:
        return False
    category = unicodedata.category(char)
    return (
        category[0] == "C"
        or category in ("Zl", "Zp")
        or (category == "Zs")
        or char in "\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5"
    )


def visible(text: str) -> str:
    """The text on one line, every hidden character as an escape (`\\x1b`, `\\u202e`)."""
    return "".join(_escape(char) if hidden(char) or 0xFE00 <= ord(char) <= 0xFE0F else char for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def has_hidden(text: str) -> bool:
    """Whether something in the text would not be seen (line breaks and tabs do not count)."""
    return visible(text.replace("\n", "").replace("\t", "")) != text.replace("\n", "").replace("\t", "")


def word(text: str) -> str:
    """One word of an argv, quoted when spaces, quotes or nothing would make it unclear."""
    shown = visible(text)
    return shown if shown and not set(shown) & set(" \"'\\") else "'" + shown.replace("'", "\\'") + "'"
