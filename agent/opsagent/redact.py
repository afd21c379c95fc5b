"""Secrets out, before the model, the disk and the screen: known values exactly, unknown ones by the shapes they come in.

Everything that leaves the hosts goes through one `Redactor`. It cannot know a secret that has no known shape and that
nobody told it about; that is why tools tell it (`Context.secrets`) what they read or make.
"""

from __future__ import annotations

import base64
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from opsagent.secret_rules import RULES, SECRET_FLAG, SECRET_KEY, SUSPICIOUS, folded, plausible

Hits = Counter[str]
"""Rule → how often it replaced something. Names and counts, never values."""

SHORTEST = 6
"""Known values shorter than this are not replaced everywhere: `EMPTY` or `1234` would tear holes into all text."""
FRAGMENT = 10
"""A first or last piece of a known value of at least this length is replaced too: outputs get cut."""


UNKNOWN = "secret"
"""The name of every secret that only its shape gave away: one name, so that it reads alike wherever it was found."""


def mark(name: str = UNKNOWN) -> str:
    """What stands in place of a secret; it is never itself taken for one."""
    return f"[redacted:{name}]"


_MARK = re.compile(r"\[redacted:([^\]\n]{1,200})\]")


def unmarked(value: Any, known: Mapping[str, str]) -> Any:
    """A redacted JSON value with the known secrets in place of their marks; marks of unknown ones stay."""
    if isinstance(value, str):
        return _MARK.sub(lambda found: known.get(found[1], found[0]), value) if "[redacted:" in value else value
    if isinstance(value, Mapping):
        return {key: unmarked(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unmarked(item, known) for item in value]
    return value


def lost_secrets(value: Any, *, of: str = "") -> list[str]:
    """Names of the marks in a JSON value: it cannot be used, because what they stand for was never kept. `of`: only this."""
    if isinstance(value, str):
        return [name for name in dict.fromkeys(_MARK.findall(value)) if of in ("", name)]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return list(dict.fromkeys(name for item in items for name in lost_secrets(item, of=of)))


def _forms(value: str) -> Iterable[str]:
    """The forms in which a known secret can appear: itself, quoted for URLs and JSON, hex, and base64 at each alignment."""
    raw = value.encode("utf-8", "surrogateescape")
    yield value
    yield quote(value, safe="", errors="replace")
    yield value.encode("unicode_escape").decode()
    yield value.replace("\\", "\\\\").replace('"', '\\"')
    if len(raw) < 8:
        return
    yield raw.hex()
    for shift in range(3):
        # Characters that also encode bits of the neighbours differ from case to case: only the inner ones are sure.
        coded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        first = (0, 2, 3)[shift]
        last = len(coded) - (1 if (shift + len(raw)) % 3 else 0)
        inner = coded[first:last]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


class Redactor:
    """Replaces secrets. Thread-safe; idempotent: what was redacted stays as it is.

    `known` maps a name (shown in the mark) to a value. Values are held in memory only.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._mutex = threading.Lock()
        self._names: dict[str, str] = {}
        self._values: list[tuple[str, str]] = []
        self._forms: tuple[str, ...] = ()
        self._marks = ""
        for name, value in (known or {}).items():
            self.add(value, name)

    def add(self, value: str, name: str = UNKNOWN) -> None:
        """From now on this value is a secret. Lines of a long one (a key file) are secrets of their own."""
        value = value.strip()
        if len(value) < SHORTEST or not plausible(value):
            return
        with self._mutex:
            pieces = [
                value,
                *(line.strip() for line in value.splitlines() if len(line.strip()) >= 16 and line != value),
            ]
            for piece in pieces:
                if piece.startswith("-----"):
                    continue
                self._values.append((piece, name))
                for form in _forms(piece):
                    self._names.setdefault(form, name)
            self._forms = tuple(sorted(self._names, key=len, reverse=True))
            ours = {UNKNOWN, *self._names.values()}
            self._marks = "|".join(re.escape(mark(known)) for known in sorted(ours))

    def text(self, text: str) -> tuple[str, Hits]:
        """The text without secrets, and what was replaced."""
        hits: Hits = Counter()
        if not text:
            return text, hits
        forms = self._forms
        if forms:
            present = [form for form in forms if form in text]
            text = self._known(text, present, hits) if present else text
            text = self._fragments(text, hits)
        low = folded(text)
        if SUSPICIOUS.search(low) is None:
            return text, hits
        for rule in RULES:
            safe = rule.apply(text, low, mark(), hits)
            if safe is not text:
                text, low = safe, folded(safe)
        return text, hits

    def data(self, data: bytes) -> tuple[bytes, Hits]:
        """The same for bytes of any kind: what is not UTF-8 passes unchanged."""
        text, hits = self.text(data.decode("utf-8", "surrogateescape"))
        return (text.encode("utf-8", "surrogateescape"), hits) if hits else (data, hits)

    def value(self, value: Any) -> tuple[Any, Hits]:
        """The same for a JSON value: texts, keys, values under a telling key, and what follows a telling flag in an argv."""
        hits: Hits = Counter()
        return self._walk(value, hits), hits

    def clean(self, text: str) -> str:
        """Only the text, for messages and the screen."""
        return self.text(text)[0]

    def _known(self, text: str, forms: list[str], hits: Hits) -> str:
        """Replace known forms, longest first, and leave the marks alone in which one may stand by chance."""

        def marked(found: re.Match[str]) -> str:
            name = self._names.get(found.group())
            if name is None:
                return found.group()
            hits[name] += 1
            return mark(name)

        return re.sub("|".join((self._marks, *(re.escape(form) for form in forms))), marked, text)

    def _fragments(self, text: str, hits: Hits) -> str:
        """Replace a known value's beginning or end where the rest was cut away (clipped outputs, torn lines)."""
        for value, name in self._values:
            if len(value) <= FRAGMENT or value[:FRAGMENT] in mark(name) or value[-FRAGMENT:] in mark(name):
                continue
            while (at := text.find(value[:FRAGMENT])) >= 0:
                end = at + FRAGMENT
                while end < len(text) and end - at < len(value) and text[end] == value[end - at]:
                    end += 1
                text = text[:at] + mark(name) + text[end:]
                hits[name] += 1
            while (at := text.find(value[-FRAGMENT:])) >= 0:
                start = at
                while (
                    start > 0
                    and at - start < len(value) - FRAGMENT
                    and (text[start - 1] == value[len(value) - FRAGMENT - (at - start) - 1])
                ):
                    start -= 1
                text = text[:start] + mark(name) + text[at + FRAGMENT :]
                hits[name] += 1
        return text

    def _walk(self, value: Any, hits: Hits) -> Any:
        if isinstance(value, str):
            text, found = self.text(value)
            hits.update(found)
            return text
        if isinstance(value, Mapping):
            return {self._walk(key, hits): self._item(str(key), item, hits) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return self._list(value, hits)
        return value

    def _item(self, key: str, item: Any, hits: Hits) -> Any:
        if isinstance(item, str) and SECRET_KEY.search(key) and plausible(item):
            hits["key"] += 1
            return mark()
        return self._walk(item, hits)

    def _list(self, items: list[Any] | tuple[Any, ...], hits: Hits) -> list[Any]:
        found: list[Any] = []
        for index, item in enumerate(items):
            before = items[index - 1] if index else None
            secret = isinstance(before, str) and SECRET_FLAG.fullmatch(before) and isinstance(item, str)
            if secret and plausible(item) and not item.startswith("-"):
                hits["flag"] += 1
                found.append(mark())
            else:
                found.append(self._walk(item, hits))
        return found
