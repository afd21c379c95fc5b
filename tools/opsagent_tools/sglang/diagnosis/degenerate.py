"""Whether a text that a model wrote is degenerate: one token repeated, a loop, nothing, or a salad of scripts."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_ANSWER = re.compile(
    r"[\"']?(?:content|text|reasoning_content|output_text|output|response|completion|answer|reply|generated(?: text)?)[\"']?"
    r"\s*[:=]\s*(?:[\"'](?P<quoted>(?:[^\"'\\]|\\.|(?<=\w)'(?=\w))*)|(?P<rest>.*))",
    re.I,
)
SHORTEST = 8
"""Characters below which a repeated text says nothing."""
SILENT = 4
"""Tokens that an empty answer may have: an end mark, an empty thought."""


def answers_of(line: str) -> list[str]:
    """The answers that a log line quotes (`"content": "…"`, `output: …`), with `\\n` read as line ends."""
    found = [m["quoted"] if m["quoted"] is not None else m["rest"] for m in _ANSWER.finditer(line)]
    return [text.replace("\\n", "\n") for text in found]


def degenerate(text: str) -> bool:
    """True if the text is one character or one short phrase over and over."""
    return bool(why_degenerate(text))


def why_degenerate(text: str, *, prompt: str = "", finished: bool = True) -> str:
    """Why a text is degenerate: `empty`, `exclamation`, `repeated`, `loop`, `wrong-script`, `no-end`, or "" if it is not.

    `prompt` is what was asked (its scripts are allowed), `finished` false when the answer was cut by its token limit.
    """
    bare = re.sub(r"\s+", "", text)
    if not bare:
        return "empty" if prompt or not text else ""
    if len(bare) >= SHORTEST and set(bare) == {"!"}:
        return "exclamation"
    if len(bare) >= 12 and max(bare.count(c) for c in set(bare)) > 0.9 * len(bare) and not bare.isdigit():
        return "exclamation" if bare.count("!") > 0.9 * len(bare) else "repeated"
    if _loops(text):
        return "loop"
    if prompt and len(_scripts(text) - _scripts(prompt)) >= 3:
        return "wrong-script"
    if not finished and len(text) > 400 and len(zlib.compress(text.encode())) < 0.12 * len(text.encode()):
        return "no-end"
    return ""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is wrong with one answer: `why` as `why_degenerate` has it, or `no-text`; '' when nothing is. `part` is where."""

    why: str = ""
    part: Literal["", "content", "reasoning"] = ""

    @property
    def words(self) -> str:
        """For people: the reason, and that it is in the thoughts when it is there."""
        return f"{self.why} (in its thoughts)" if self.part == "reasoning" else self.why


def judge(
    content: str, reasoning: str = "", *, prompt: str = "", finish: str = "stop", tokens: int | None = None
) -> Judged:
    """Content and thoughts of one answer, each for itself.

    `finish` is SGLang's finish_reason, `tokens` its count of completion tokens. `no-text`: tokens were made, and none of
    them is text (special tokens, or numbers that the tokenizer does not have): not the same as an answer that ends at once.
    Readable thoughts that the token limit cut are no garbage.
    """
    cut = finish == "length"
    for text, part in ((content, "content"), (reasoning, "reasoning")):
        why = why_degenerate(text, prompt=prompt, finished=not cut) if text.strip() else ""
        if why:
            return Judged(why, "content" if part == "content" else "reasoning")
    if content.strip() or (reasoning.strip() and cut):
        return Judged()
    if tokens is not None and tokens > SILENT and not reasoning.strip():
        return Judged("no-text", "content")
    return Judged("empty", "content")


def repeated_token(tokens: Sequence[int]) -> int | None:
    """The token that an answer consists of, as far as it ends with one over and over (eight times or more, half of it)."""
    if not tokens:
        return None
    last, count = tokens[-1], 0
    for token in reversed(tokens):
        if token != last:
            break
        count += 1
    return last if count >= SHORTEST and 2 * count >= len(tokens) else None


def _loops(text: str) -> bool:
    """One unit of up to 60 characters fills the end of the text, four times or more."""
    tail = text.rstrip(" .…\"'}]\n").strip()
    if len(tail) < 16:
        return False
    found = re.search(r"(.{1,60}?)\1{3,}.{0,12}$", tail, re.S)
    if found and len(found[0]) >= max(16, 0.6 * len(tail)) and not re.fullmatch(r"[-=*_.\s\d]+", found[1]):
        return True
    words = re.findall(r"\S+", tail)
    if len(words) >= 4 and len(set(words)) == 1:
        return True
    if len(words) < 24:
        return False
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return len(set(grams)) < 0.2 * len(grams)


def _scripts(text: str) -> set[str]:
    """Names of the scripts of the letters of a text (LATIN, CJK, CYRILLIC, …)."""
    return {unicodedata.name(c, "?").split(" ")[0] for c in set(text) if c.isalpha()}
