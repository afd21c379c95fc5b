"""Reading a log that grows, and that may be turned over while we read: copied and cut, or renamed."""

from __future__ import annotations

from dataclasses import dataclass

from opsagent_tools.host import Host, argv
from opsagent_tools.jobs import read_log

GAP = b"\n# opsagent: the log was turned over here, and what lay between could not be read\n"


@dataclass(frozen=True, slots=True)
class Place:
    """How far a log was read: bytes from the beginning of one file. `inode` '' before the first look."""

    offset: int = 0
    inode: str = ""


def read_on(host: Host, path: str, at: Place) -> tuple[bytes, Place]:
    """What was written since `at`, across one turn of the log, and where to go on from. Empty while there is no file.

    A file that is shorter than what was read of it was cut, another inode means that it was renamed: the rest of the old one
    is in PATH.1. (A file that was cut and has grown beyond the old place since the last look is taken for the same.)
    """
    size, inode = look(host, path)
    if size is None:
        return b"", at
    rest = b""
    if at.inode and (size < at.offset or inode != at.inode):
        old_size, old_inode = look(host, f"{path}.1")
        cut = inode == at.inode
        if old_size is not None and old_size >= at.offset and (cut or old_inode == at.inode):
            rest = read_log(host, f"{path}.1", at.offset)[0]
        else:
            rest = GAP
        at = Place(0, inode)
    data, offset = read_log(host, path, at.offset)
    return rest + data, Place(offset, inode)


def look(host: Host, path: str) -> tuple[int | None, str]:
    """Size in bytes and inode of a file; (None, '') when there is none."""
    done = argv(host, "stat", "-L", "-c", "%s %i", path, timeout_s=20)
    words = done.stdout.split()
    if not done.ok or not words or not words[0].isdigit():
        return None, ""
    return int(words[0]), words[1] if len(words) > 1 else "?"
