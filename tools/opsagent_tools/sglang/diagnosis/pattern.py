"""Regular expressions with anchors: words that a line must have, so that most lines are never tried against most patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

WORD = re.compile(r"[a-z_]{4,}")
_META = set("\\.^$*+?{}[]|()")


@dataclass(slots=True)
class Pattern:
    """A case-insensitive regular expression, compiled on its first use. `anchors`: one of them is in every match."""

    source: str
    anchors: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """The anchors as whole words, when each of them is one: then a set of words decides instead of a search."""
    _compiled: re.Pattern[str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, source: str) -> Pattern:
        runs = [_branch(branch) for branch in _branches(source)]
        anchors = tuple(max(branch, key=len, default="") for branch in runs)
        words = tuple(max(_whole_words(branch), key=len, default="") for branch in runs)
        if min(map(len, anchors)) < 4:
            raise ValueError(
                f"no word of four letters that every match of {source!r} has: it would be tried on every line"
            )
        return cls(source, anchors, words if all(words) else ())

    def search(self, text: str) -> re.Match[str] | None:
        if self._compiled is None:
            self._compiled = re.compile(self.source, re.I)
        return self._compiled.search(text)


def _branches(source: str) -> list[str]:
    """The alternatives of the top level; a lone group around everything is opened."""
    parts, depth, begin, i, in_class = [], 0, 0, 0, False
    while i < len(source):
        c = source[i]
        if c == "\\":
            i += 1
        elif in_class:
            in_class = c != "]"
        elif c == "[":
            in_class = True
            if source[i + 1 : i + 2] in ("]", "^"):
                i += 1
        elif c in "()":
            depth += 1 if c == "(" else -1
        elif c == "|" and depth == 0:
            parts.append(source[begin:i])
            begin = i + 1
        i += 1
    return [*parts, source[begin:]]


def _branch(source: str) -> list[str]:
    """Runs of literal characters at the top level of one alternative, lower-cased, without digits."""
    runs, run, depth, i = [], "", 0, 0
    while i < len(source):
        c, nxt = source[i], source[i + 1 : i + 2]
        literal = ""
        if c == "\\":
            i += 1
            if depth == 0 and not nxt.isalnum():
                literal = nxt
        elif c == "[":
            end = i + 2 if nxt in ("]", "^") else i + 1
            while end < len(source) and source[end] != "]":
                end += 2 if source[end] == "\\" else 1
            i = end
        elif c in "()":
            depth += 1 if c == "(" else -1
        elif c == "{":
            i = source.find("}", i)
        elif depth == 0 and c not in _META:
            literal = c
        if literal and source[i + 1 : i + 2] not in ("?", "*", "{") and not literal.isdigit():
            run += literal.lower()
        else:
            runs.append(run)
            run = ""
        i += 1
    return [r for r in [*runs, run] if r]


def _whole_words(runs: list[str]) -> list[str]:
    """Words that stand whole inside a run: what is before and after them is in the run too."""
    found = []
    for run in runs:
        for match in WORD.finditer(run):
            if match.start() > 0 and match.end() < len(run):
                found.append(match[0])
    return found


@dataclass(frozen=True, slots=True)
class Index:
    """All patterns by anchor. `wanted` answers whether any could match; `candidates` which ones."""

    patterns: tuple[Pattern, ...]
    by_word: dict[str, tuple[int, ...]]
    by_part: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, patterns: tuple[Pattern, ...]) -> Index:
        words: dict[str, list[int]] = {}
        parts: dict[str, list[int]] = {}
        for number, pattern in enumerate(patterns):
            for key in pattern.words or pattern.anchors:
                (words if pattern.words else parts).setdefault(key, []).append(number)
        return cls(
            patterns,
            {key: tuple(numbers) for key, numbers in words.items()},
            tuple((key, tuple(numbers)) for key, numbers in parts.items()),
        )

    def wanted(self, lowered: str) -> bool:
        if any(part in lowered for part, _numbers in self.by_part):
            return True
        return not self.by_word.keys().isdisjoint(WORD.findall(lowered))

    def candidates(self, lowered: str) -> set[int]:
        found = {n for part, numbers in self.by_part if part in lowered for n in numbers}
        for word in self.by_word.keys() & set(WORD.findall(lowered)):
            found.update(self.by_word[word])
        return found
