"""The journal of a run folder: `events.jsonl`, appended and flushed line by line, and `blobs/` by sha256."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from opsagent.journal.disk import Disk, cannot, put_file, sync_folder, write_all
from opsagent.journal.fold import fold
from opsagent.journal.format import UNFLUSHED
from opsagent.journal.lock import RunLock, take
from opsagent.journal.reader import BLOBS, EVENTS, Log, blob_path, read_blob, read_log
from opsagent.journal.state import RunState
from opsagent.journal.writer import Chain, Observer, utc_now
from opsagent.protocols import Event
from opsagent.redact import Redactor
from opsagent_tools.errors import InputError, JournalError


class FileJournal:
    """One writer of one run. Make it with `create` or `resume`; close it, or use it in a `with`.

    When `append` returns, the line is on disk. When it raises JournalError, the event did not happen, and neither may the
    effect it announces; every later append raises too, because what the disk holds is no longer known.
    """

    def __init__(self, folder: Path, lock: RunLock, fd: int, log: Log, chain: Chain, disk: Disk) -> None:
        self.folder = folder
        self._lock, self._fd, self._chain, self._disk = lock, fd, chain, disk
        self._size = log.size
        self._events: list[Event] = list(log.events)
        self._observers: list[Observer] = []
        self._broken: JournalError | None = None
        self._pending: tuple[Event, bytes] | None = None
        """An event that is being written: see `_settle`."""
        self._mutex = threading.RLock()

    @classmethod
    def create(
        cls,
        folder: Path,
        redactor: Redactor | None = None,
        *,
        now: Callable[[], str] = utc_now,
        disk: Disk | None = None,
        observers: Sequence[Observer] = (),
    ) -> FileJournal:
        """Begin a run in an empty folder (made if missing). Raises InputError if a run is there, JournalError."""
        try:
            (folder / BLOBS).mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = take(folder)
            try:
                fd = os.open(folder / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                sync_folder(folder)
            except BaseException:
                lock.release()
                raise
        except FileExistsError:
            raise InputError(
                "this folder holds a run already", where=str(folder), hint="`opsagent resume` goes on with it"
            ) from None
        except OSError as error:
            raise cannot("begin a run", folder, error) from error
        log = Log((), head="", size=0)
        journal = cls(folder, lock, fd, log, Chain(redactor or Redactor(), now), disk or Disk())
        journal._observers.extend(observers)
        return journal

    @classmethod
    def resume(
        cls,
        folder: Path,
        redactor: Redactor | None = None,
        *,
        now: Callable[[], str] = utc_now,
        disk: Disk | None = None,
        observers: Sequence[Observer] = (),
    ) -> FileJournal:
        """Go on with a run: a torn last line is cut off and noted. Raises TranscriptDamaged, InputError (in use)."""
        if not (folder / EVENTS).exists():
            raise InputError(f"no journal in {folder}", hint="`opsagent runs` lists the runs")
        try:
            lock = take(folder)
        except OSError as error:
            raise cannot("lock the run", folder, error) from error
        try:
            log = read_log(folder)
            state = fold(log.events)
            fd = os.open(
                folder / EVENTS, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            )  # a stranger's link may lead anywhere
            os.ftruncate(fd, log.size)
            os.lseek(fd, log.size, os.SEEK_SET)
            os.fsync(fd)
        except OSError as error:
            lock.release()
            raise cannot("open the journal", folder / EVENTS, error) from error
        except BaseException:
            lock.release()
            raise
        chain = Chain(redactor or Redactor(), now, state, log.head, len(log.events))
        journal = cls(folder, lock, fd, log, chain, disk or Disk())
        journal._observers.extend(observers)
        if log.torn:
            journal.append("note", kind="torn-line", line=log.torn_line, bytes=len(log.torn))
        return journal

    @property
    def state(self) -> RunState:
        """The fold of all events so far."""
        return self._chain.state

    @property
    def redactor(self) -> Redactor:
        return self._chain.redactor

    def append(self, type: str, /, **data: Any) -> Event:
        with self._mutex:
            if self._broken is not None:
                raise self._broken
            self._settle()
            event, line = self._chain.make(type, data)
            self._pending = (event, line)
            self._write(line + b"\n", flush=type not in UNFLUSHED)
            self._commit(event, line)
            for observer in self._observers:
                observer(event)
            told = self._chain.redactions(event)
            if told is not None:
                self.append("redaction.applied", **told)
            return event

    def _write(self, line: bytes, *, flush: bool) -> None:
        try:
            write_all(self._disk, self._fd, line)
            if flush:
                self._disk.fsync(self._fd)
        except OSError as error:
            self._broken = cannot("write the journal", self.folder / EVENTS, error)
            self._cut_back()
            raise self._broken from error

    def _commit(self, event: Event, line: bytes) -> None:
        """The line is on disk: the event is part of the run."""
        self._events.append(event)
        self._chain.stored(event, line)
        self._size += len(line) + 1
        self._pending = None

    def _settle(self) -> None:
        """After a Ctrl-C in the middle of an append: the event counts if its whole line is there, else it never was."""
        if self._pending is None:
            return
        event, line = self._pending
        if self._chain.seq < event.seq and os.fstat(self._fd).st_size == self._size + len(line) + 1:
            self._commit(event, line)
        elif self._chain.seq < event.seq:
            self._cut_back()
        else:
            self._size = os.fstat(self._fd).st_size
        self._pending = None

    def _cut_back(self) -> None:
        """Remove what a failed append left; if that fails too, it is a torn line, which readers know."""
        try:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
        except OSError:
            return

    def blob(self, data: bytes, *, name: str = "") -> str:
        """Store redacted bytes durably and return their sha256; `name` is only for the reader of the code."""
        with self._mutex:
            if self._broken is not None:
                raise self._broken
            safe, hits = self.redactor.data(data)
            self._chain.untold.update(hits)
            sha256 = hashlib.sha256(safe).hexdigest()
            path = blob_path(self.folder, sha256)
            if not path.exists():
                try:
                    put_file(self._disk, path, safe)
                except OSError as error:
                    self._broken = cannot("store an output", path, error)
                    raise self._broken from error
            return sha256

    def read_blob(self, sha256: str) -> bytes:
        return read_blob(self.folder, sha256)

    def events(self) -> Iterator[Event]:
        return iter(tuple(self._events))

    def close(self) -> None:
        """Give the file and the lock back. Twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._lock.release()
            self._fd = -1
            self._broken = JournalError("the journal is closed", where=str(self.folder))

    def __enter__(self) -> FileJournal:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
