"""Regular expressions with anchors: words that a line must have, so that few lines are tried against few patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

WORD = re.compile(r"[a-z_]{4,}")
SHORTEST = 3
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
        anchors, end = _alternatives(source, 0)
        words = tuple(max(_whole_words(anchor), key=len, default="") for anchor in anchors)
        if not anchors or min(map(len, anchors)) < SHORTEST or end != len(source):
            raise ValueError(
                f"no word of three letters that every match of {source!r} has: it would be tried on every line"
            )
        return cls(source, anchors, words if all(words) else ())

    def search(self, text: str) -> re.Match[str] | None:
        if self._compiled is None:
            self._compiled = re.compile(self.source, re.I)
        return self._compiled.search(text)


def _alternatives(source: str, i: int) -> tuple[tuple[str, ...], int]:
    """Anchors of `a|b|c` from `i` to the bracket that closes it: one for each alternative, or none if one has none."""
    found: list[str] = []
    complete = True
    while True:
        best, i = _sequence(source, i)
        complete = complete and bool(best)
        found += best
        if i >= len(source) or source[i] == ")":
            return (tuple(dict.fromkeys(found)) if complete else ()), i
        i += 1


def _sequence(source: str, i: int) -> tuple[tuple[str, ...], int]:
    """The best anchors of one alternative: its longest literal run, or a group all of whose alternatives have one."""
    best: tuple[str, ...] = ()
    run = ""
    while i < len(source) and source[i] not in "|)":
        group: tuple[str, ...] = ()
        literal = ""
        c = source[i]
        if c == "(":
            lookaround = source.startswith(("(?=", "(?!", "(?<=", "(?<!"), i)
            i += 1
            if source[i] == "?":
                i = source.index(":" if source[i + 1] == ":" else source[i + 1], i) + 1
            group, i = _alternatives(source, i)
            i += 1
            group = () if lookaround else group
        elif c == "[":
            i += 2 if source[i + 1] in "]^" else 1
            while source[i] != "]":
                i += 2 if source[i] == "\\" else 1
            i += 1
        elif c == "\\":
            literal, i = ("" if source[i + 1].isalnum() else source[i + 1]), i + 2
        else:
            literal, i = ("" if c in _META else c), i + 1
        i, least = _quantifier(source, i)
        if literal and not literal.isdigit() and least == 1:
            run += literal.lower()
            continue
        best = _better(best, (run,))
        run = ""
        if least and group:
            best = _better(best, group)
    return _better(best, (run,)), i


def _quantifier(source: str, i: int) -> tuple[int, int]:
    """Past a quantifier, and how often the element must be there: 1 exactly once, 2 at least once, 0 perhaps not at all."""
    least = 1
    if i < len(source) and source[i] in "?*+{":
        end = source.index("}", i) if source[i] == "{" else i
        least = 2 if source[i] == "+" or (source[i : i + 2] not in ("{0", "{,") and source[i] == "{") else 0
        i = end + 1
        if i < len(source) and source[i] in "?+":
            i += 1
    return i, least


def _better(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The set of anchors whose shortest is longer; few are better than many."""

    def worth(anchors: tuple[str, ...]) -> float:
        shortest = min(map(len, anchors), default=0)
        return min(12, shortest) - 0.05 * len(anchors) if shortest >= SHORTEST else shortest - 99.0

    return one if worth(one) >= worth(other) else (other if all(other) else ())


def _whole_words(run: str) -> list[str]:
    """Words that stand whole inside a literal run: what is before and after them is in the run too."""
    return [m[0] for m in WORD.finditer(run) if m.start() > 0 and m.end() < len(run)]


PATIENCE = 500
"""Lines after which one expression of all anchors is worth its compilation."""


@dataclass(slots=True)
class Index:
    """All patterns by anchor. `wanted` answers whether any could match; `candidates` which ones."""

    patterns: tuple[Pattern, ...]
    by_word: dict[str, tuple[int, ...]]
    by_part: tuple[tuple[str, tuple[int, ...]], ...]
    _asked: int = 0
    _any: re.Pattern[str] | None = None

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
        if self._any is not None:
            if self._any.search(lowered):
                return True
        elif any(part in lowered for part, _numbers in self.by_part):
            return True
        else:
            self._asked += 1
            if self._asked > PATIENCE:
                self._any = re.compile(_trie([part for part, _numbers in self.by_part]))
        return not self.by_word.keys().isdisjoint(WORD.findall(lowered))

    def candidates(self, lowered: str) -> set[int]:
        found = {n for part, numbers in self.by_part if part in lowered for n in numbers}
        for word in self.by_word.keys() & set(WORD.findall(lowered)):
            found.update(self.by_word[word])
        return found


def _trie(words: list[str]) -> str:
    """One expression for any of many words, in which words with the same beginning share it."""
    heads: dict[str, list[str]] = {}
    for word in set(words):
        heads.setdefault(word[0], []).append(word[1:])
    branches = []
    for head, rests in sorted(heads.items()):
        # A word that ends here makes longer ones with the same beginning superfluous.
        branches.append(re.escape(head) + ("" if "" in rests else _trie(rests)))
    return branches[0] if len(branches) == 1 else "(?:" + "|".join(branches) + ")"
