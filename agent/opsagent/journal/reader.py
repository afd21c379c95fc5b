"""Reading a journal: every line checked, a torn last line tolerated, anything else damage that names its line."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from opsagent.journal.format import decode, digest
from opsagent.protocols import Event
from opsagent_tools.errors import InputError, JournalError, TranscriptDamaged

EVENTS = "events.jsonl"
BLOBS = "blobs"


@dataclass(frozen=True, slots=True)
class Log:
    """A journal as it lies on disk."""

    events: tuple[Event, ...]
    head: str
    """Digest of the last whole line: what the next event's `prev` must be."""
    size: int
    """Bytes of all whole lines; what follows is the torn line."""
    torn: bytes = b""
    """The last line when its end is missing: its append never returned, so nothing was done because of it."""

    @property
    def torn_line(self) -> int | None:
        """Number of the torn line, or None."""
        return len(self.events) + 1 if self.torn else None


def read_log(folder: Path) -> Log:
    """Read a run folder's journal. Raises TranscriptDamaged (which line), JournalError (cannot be read)."""
    return parse_log(journal_bytes(folder), str(folder / EVENTS))


def journal_bytes(folder: Path) -> bytes:
    """The bytes of a run folder's journal. Raises InputError (there is none), JournalError (cannot be read)."""
    path = folder / EVENTS
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"no journal in {folder}", where=str(path), hint="`opsagent runs` lists the runs") from None
    except OSError as error:
        raise JournalError(f"cannot read the journal: {error.strerror}", where=str(path)) from error


def parse_log(data: bytes, where: str) -> Log:
    """The same for bytes."""
    log, damage = parse_intact(data, where)
    if damage is not None:
        raise damage
    return log


def parse_intact(data: bytes, where: str) -> tuple[Log, TranscriptDamaged | None]:
    """The events before the first damaged line, and what is wrong with that line: for people who look, not for a resume."""
    *lines, torn = data.split(b"\n")
    events: list[Event] = []
    prev, size = "", 0
    for number, line in enumerate(lines, start=1):
        try:
            events.append(decode(line, number, prev, where))
        except TranscriptDamaged as error:
            return Log(tuple(events), head=prev, size=size), error
        prev, size = digest(line), size + len(line) + 1
    return Log(tuple(events), head=prev, size=size, torn=torn), None


def blob_path(folder: Path, sha256: str) -> Path:
    """Where a blob lies. Raises InputError for what is no sha256 (it must not become a path)."""
    if len(sha256) != 64 or not all(c in "0123456789abcdef" for c in sha256):
        raise InputError(f"not a sha256: {sha256!r}")
    return folder / BLOBS / sha256


def read_blob(folder: Path, sha256: str) -> bytes:
    """Read a blob and check its content against its name. Raises TranscriptDamaged."""
    path = blob_path(folder, sha256)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TranscriptDamaged(f"blob {sha256[:12]}… is missing", where=str(path)) from None
    except OSError as error:
        raise JournalError(f"cannot read a blob: {error.strerror}", where=str(path)) from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise TranscriptDamaged(f"blob {sha256[:12]}… was changed: its content has another sha256", where=str(path))
    return data
