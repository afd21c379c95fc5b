"""Raw bytes to numbered, clean lines: any encoding, endless lines, ANSI colours and progress bars, in bounded memory."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

Source = bytes | Iterable[bytes] | Iterable[str]
"""A whole log, chunks of one as read from a file (cut anywhere), or its lines as text."""

LONGEST_LINE = 256 * 1024
"""Bytes of one line that are kept, half from its head and half from its tail: a progress bar can be one endless line."""

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f]")
# Loggers of several processes share one stream: a record can start behind a progress bar that has not ended its line.
_RECORDS = re.compile(r"\r|(?<=[^\s|])(?=\[20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d)")
_BAR = re.compile(r"\d+%\|[^|]*\|")
_BARS = 64
"""Bars of a download that are kept of one line: whether they move is evidence."""


def numbered(source: Source) -> Iterator[tuple[int, bytes]]:
    """The lines of `source` with their numbers from 1, without their line ends. Numbers count newline bytes only."""
    number, rest, dropped = 0, b"", b""
    for chunk in _chunks(source):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            yield number, _clip(dropped + line) if dropped else _clip(line)
            dropped = b""
        if len(rest) > LONGEST_LINE:
            dropped = _clip(dropped + rest) if dropped else _clip(rest)
            rest = b""
    if rest or dropped:
        yield number + 1, _clip(dropped + rest)


def segments(raw: bytes) -> list[str]:
    """The records of one physical line as text: colours and finished progress bars removed, undecodable bytes replaced."""
    text = raw.decode("utf-8", "replace")
    if "\x1b" in text or not text.isprintable():
        text = _ANSI.sub("", text.rstrip("\r"))
    if "\r" not in text and "[20" not in text[1:]:
        return [text]
    parts = [part for part in _RECORDS.split(text) if part.strip()]
    kept = [part for part in parts if not (_BAR.search(part) and len(parts) > 1 and "B/s" not in part)]
    if len(kept) > _BARS:
        kept = kept[: _BARS // 2] + kept[-_BARS // 2 :]
    return kept or parts[-1:]


def _clip(line: bytes) -> bytes:
    if len(line) <= LONGEST_LINE:
        return line
    half = LONGEST_LINE // 2
    return line[:half] + b" ... " + line[-half:]


def _chunks(source: Source) -> Iterator[bytes]:
    pieces: Iterable[bytes | str] = (source,) if isinstance(source, bytes) else source
    decoder: codecs.IncrementalDecoder | None = None
    for first, piece in enumerate(pieces):
        if isinstance(piece, str):
            text = piece if piece.endswith("\n") else piece + "\n"
            yield text.encode("utf-8", "replace")
            continue
        if first == 0 and (wide := _wide(piece)):
            decoder = codecs.getincrementaldecoder(wide)("replace")
        yield decoder.decode(piece).encode("utf-8", "replace") if decoder else piece


def _wide(head: bytes) -> str:
    """The name of a two-byte encoding if the log was written in one (a redirect of PowerShell does that)."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    sample = head[:256]
    if len(sample) >= 8 and sample[1::2].count(0) > len(sample) // 3:
        return "utf-16-le"
    return ""
