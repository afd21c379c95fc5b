"""Ways for a process to die for real, at a place that the test chooses."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from opsagent.journal.disk import Disk

PHASES = ("before the write", "in the write", "after the write", "after the flush")


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still here")


def deadly_disk(at: int, phase: str) -> Disk:
    """A disk on which write number `at` is the last thing that the process does."""
    writes = [0]

    def write(fd: int, data: bytes) -> int:
        writes[0] += 1
        if writes[0] == at and phase == "before the write":
            die()
        if writes[0] == at and phase == "in the write":
            os.write(fd, data[: len(data) // 2])
            die()
        done = os.write(fd, data)
        if writes[0] == at and phase == "after the write":
            die()
        return done

    def fsync(fd: int) -> None:
        if writes[0] == at and phase == "after the flush":
            die()

    return Disk(write=write, fsync=fsync)
