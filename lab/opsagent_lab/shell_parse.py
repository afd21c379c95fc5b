"""The subset of POSIX shell that the lab's shells read: lists, pipes, redirections, quotes, variables. No more.

Whatever lies beyond it (substitutions, loops, functions, here-documents) is refused as a syntax error with a shell's
words and
exit code 2: a simulated shell must never be silently wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

OPERATORS = ("&&", "||", ";;", ">>", "<<", ">&", "<&", "&>", "|", "&", ";", "<", ">", "(", ")")
RESERVED = frozenset(
    [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "{",
        "}",
        "[[",
        "time",
        "coproc",
    ]
)


class ShellSyntax(Exception):
    """Control signal inside the lab: the text is not in the subset. `words` is what bash says after its prefix."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


def unexpected(token: str) -> ShellSyntax:
    return ShellSyntax(f"syntax error near unexpected token `{token}'")


Joiner = Literal[";", "&&", "||"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a word: literal text (quoted or not) or a variable. Unquoted text globs, unquoted variables split."""

    text: str
    quoted: bool
    variable: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    pieces: tuple[Piece, ...]

    @property
    def plain(self) -> str | None:
        """The text of a word without quotes and variables (operators and names are recognised in it)."""
        if all(not p.quoted and not p.variable for p in self.pieces):
            return "".join(p.text for p in self.pieces)
        return None


@dataclass(frozen=True, slots=True)
class Redirect:
    """`fd` goes to `target`: a file (`<`, `>`, `>>`) or another descriptor (`>&`)."""

    fd: int
    kind: Literal["<", ">", ">>", ">&"]
    target: Word


@dataclass(frozen=True, slots=True)
class Simple:
    """Assignments, words, redirections."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    stages: tuple[Simple, ...]
    negated: bool
    joiner: Joiner
    """What stands before it."""
    background: bool = False


@dataclass(frozen=True, slots=True)
class _Op:
    text: str


def tokens(text: str) -> list[Word | _Op]:
    """Words and operators. Raises ShellSyntax."""
    out: list[Word | _Op] = []
    pieces: list[Piece] = []
    at, fresh = 0, True

    def flush() -> None:
        nonlocal fresh
        if not fresh:
            out.append(Word(tuple(pieces)))
            pieces.clear()
        fresh = True

    while at < len(text):
        char = text[at]
        if char in " \t\n":
            flush()
            if char == "\n":
                out.append(_Op("\n"))
            at += 1
        elif char == "#" and fresh:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif (op := next((o for o in OPERATORS if text.startswith(o, at)), None)) is not None:
            digits = "".join(p.text for p in pieces)
            if op[0] in "<>" and len(digits) == 1 and digits.isdigit() and not pieces[0].quoted:
                pieces.clear()
                fresh = True
                op_text = digits + op
            else:
                flush()
                op_text = op
            out.append(_Op(op_text))
            at += len(op)
        else:
            fresh = False
            at = _piece(text, at, pieces)
    flush()
    return out


def _piece(text: str, at: int, pieces: list[Piece]) -> int:
    """Read one piece of a word from position `at`; returns the position after it."""
    char = text[at]
    if char == "'":
        end = text.find("'", at + 1)
        if end < 0:
            raise ShellSyntax("unexpected EOF while looking for matching `''")
        pieces.append(Piece(text[at + 1 : end], True))
        return end + 1
    if char == '"':
        return _double(text, at + 1, pieces)
    if char == "\\":
        if at + 1 < len(text) and text[at + 1] != "\n":
            pieces.append(Piece(text[at + 1], True))
        return at + 2
    if char == "`":
        raise unexpected("`")
    if char == "$":
        return _variable(text, at, pieces, False)
    end = at
    while end < len(text) and text[end] not in " \t\n'\"\\`$|&;<>()":
        end += 1
    pieces.append(Piece(text[at:end], False))
    return end


def _double(text: str, at: int, pieces: list[Piece]) -> int:
    pieces.append(Piece("", True))
    literal = ""
    while at < len(text):
        char = text[at]
        if char == '"':
            pieces.append(Piece(literal, True))
            return at + 1
        if char == "\\" and at + 1 < len(text) and text[at + 1] in '"\\$`\n':
            literal += "" if text[at + 1] == "\n" else text[at + 1]
            at += 2
        elif char == "`":
            raise unexpected("`")
        elif char == "$":
            pieces.append(Piece(literal, True))
            literal = ""
            at = _variable(text, at, pieces, True)
        else:
            literal += char
            at += 1
    raise ShellSyntax("unexpected EOF while looking for matching `\"'")


def _variable(text: str, at: int, pieces: list[Piece], quoted: bool) -> int:
    rest = text[at + 1 :]
    if rest[:1] == "(":
        raise unexpected("(")
    if rest[:1] == "'" and not quoted:
        raise unexpected("$'")
    if rest[:1] == "{":
        end = rest.find("}")
        name = rest[1:end] if end > 0 else ""
        if not name.isidentifier():
            raise ShellSyntax(f"${rest[: end + 1]}: bad substitution")
        pieces.append(Piece(name, quoted, True))
        return at + end + 2
    if rest[:1] in ("?", "$", "#", "@", "*", "!", "-") or rest[:1].isdigit():
        pieces.append(Piece(rest[0], quoted, True))
        return at + 2
    length = 0
    while length < len(rest) and (rest[length].isascii() and (rest[length].isalnum() or rest[length] == "_")):
        length += 1
    pieces.append(Piece(rest[:length], quoted, True) if length else Piece("$", True))
    return at + 1 + length


def parse(text: str) -> list[Pipeline]:
    """The pipelines of a command line, in order, with what joins them. Raises ShellSyntax."""
    stream = tokens(text)
    out: list[Pipeline] = []
    joiner: Joiner = ";"
    at = 0
    while at < len(stream):
        token = stream[at]
        if isinstance(token, _Op) and token.text == "\n":
            at += 1
            continue
        pipeline, at = _pipeline(stream, at, joiner)
        out.append(pipeline)
        if at >= len(stream):
            return out
        token = stream[at]
        assert isinstance(token, _Op)
        if token.text in (";", "\n"):
            joiner = ";"
        elif token.text in ("&&", "||"):
            joiner = "&&" if token.text == "&&" else "||"
            while at + 1 < len(stream) and stream[at + 1] == _Op("\n"):
                at += 1
            if at + 1 == len(stream):
                raise ShellSyntax("syntax error: unexpected end of file")
        elif token.text == "&":
            out[-1] = replace(pipeline, background=True)
            joiner = ";"
        else:
            raise unexpected(token.text)
        at += 1
    return out


def _pipeline(stream: list[Word | _Op], at: int, joiner: Joiner) -> tuple[Pipeline, int]:
    negated = False
    first = stream[at]
    if isinstance(first, Word) and first.plain == "!":
        negated, at = True, at + 1
    stages: list[Simple] = []
    while True:
        simple, at = _simple(stream, at)
        stages.append(simple)
        if at < len(stream) and stream[at] == _Op("|"):
            at += 1
            while at < len(stream) and stream[at] == _Op("\n"):
                at += 1
            continue
        return Pipeline(tuple(stages), negated, joiner), at


def _simple(stream: list[Word | _Op], at: int) -> tuple[Simple, int]:
    assignments: list[tuple[str, Word]] = []
    words: list[Word] = []
    redirects: list[Redirect] = []
    while at < len(stream):
        token = stream[at]
        if isinstance(token, _Op):
            if token.text.lstrip("0123456789") not in ("<", ">", ">>", ">&", "&>"):
                break
            if at + 1 >= len(stream):
                raise unexpected("newline")
            target = stream[at + 1]
            if isinstance(target, _Op):
                raise unexpected(target.text.replace("\n", "newline"))
            redirects += _redirect(token.text, target)
            at += 2
            continue
        name, assigned = _assignment(token)
        if not words and assigned is not None:
            assignments.append((name, assigned))
        else:
            if not words and token.plain in RESERVED:
                raise unexpected(token.plain or "")
            words.append(token)
        at += 1
    if not words and not assignments and not redirects:
        token = stream[at] if at < len(stream) else _Op("newline")
        if at >= len(stream):
            raise ShellSyntax("syntax error: unexpected end of file")
        assert isinstance(token, _Op)
        raise unexpected(token.text.replace("\n", "newline"))
    return Simple(tuple(assignments), tuple(words), tuple(redirects)), at


def _redirect(op: str, target: Word) -> list[Redirect]:
    kind = op.lstrip("0123456789")
    number = op[: len(op) - len(kind)]
    if kind == "&>":
        return [Redirect(1, ">", target), Redirect(2, ">&", Word((Piece("1", False),)))]
    if kind == "<":
        return [Redirect(int(number or 0), "<", target)]
    mode: Literal[">", ">>", ">&"] = ">&" if kind == ">&" else ">>" if kind == ">>" else ">"
    return [Redirect(int(number or 1), mode, target)]


def _assignment(word: Word) -> tuple[str, Word | None]:
    """Split `NAME=value`; the name must be unquoted."""
    head = word.pieces[0] if word.pieces else None
    if head is None or head.quoted or head.variable or "=" not in head.text:
        return "", None
    name, value = head.text.split("=", 1)
    if not (name.isascii() and name.isidentifier()):
        return "", None
    return name, Word((Piece(value, False), *word.pieces[1:]))
