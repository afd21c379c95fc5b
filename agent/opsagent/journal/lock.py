"""One writer per run: a lock that dies with its process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from opsagent_tools.errors import InputError

LOCK = "lock"


def boot_id() -> str:
    """This machine's boot ('' where the kernel does not say): a pid means something only within one boot."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


@dataclass(frozen=True, slots=True)
class RunLock:
    """A held lock. The kernel gives it back when the process ends, however it ends."""

    fd: int

    def release(self) -> None:
        fcntl.flock(
            self.fd, fcntl.LOCK_UN
        )  # closing is not enough while a child that was just forked has the file, too
        os.close(self.fd)


def holder(folder: Path) -> dict[str, object]:
    """Who holds the lock, or held it last: `{pid, boot_id}`; {} when unknown."""
    with contextlib.suppress(OSError, ValueError):
        value = json.loads((folder / LOCK).read_text())
        if isinstance(value, dict):
            return value
    return {}


def take(folder: Path) -> RunLock:
    """Take the lock of a run folder. Raises InputError when another process writes this run."""
    fd = os.open(
        folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )  # never write through a link
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        pid = holder(folder).get("pid", "unknown")
        raise InputError(
            f"another process (pid {pid}) is writing this run",
            where=str(folder),
            hint="wait for it, or end it with Ctrl-C; then go on with `opsagent resume`",
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps({"pid": os.getpid(), "boot_id": boot_id()}).encode() + b"\n", 0)
    return RunLock(fd)


def is_live(folder: Path) -> bool:
    """Whether some process holds the lock right now."""
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
