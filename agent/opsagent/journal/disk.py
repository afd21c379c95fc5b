"""The few operations by which the journal touches the disk, as a value: a test passes one that is full or broken."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opsagent_tools.errors import JournalError


@dataclass(frozen=True, slots=True)
class Disk:
    """`write(fd, bytes) -> written` and `fsync(fd)`, as the operating system has them."""

    write: Callable[[int, bytes], int] = os.write
    fsync: Callable[[int], None] = os.fsync


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write everything or raise OSError: a short write goes on where it stopped."""
    view = memoryview(data)
    while view:
        view = view[disk.write(fd, bytes(view)) :]


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a new file's name survives the power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def put_file(disk: Disk, path: Path, data: bytes) -> None:
    """Write a file so that either all of it is there under its name, or nothing. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        try:
            write_all(disk, fd, data)
            disk.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def cannot(doing: str, path: Path, error: OSError) -> JournalError:
    """The error of a journal that cannot be written. The caller must not go on to the effect."""
    return JournalError(
        f"cannot {doing}: {error.strerror or error}",
        where=str(path),
        hint="nothing was executed after this; free or repair the disk, then `opsagent resume` the run",
    )
