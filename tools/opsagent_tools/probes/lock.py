# opsagent probe: lock
"""Who may write on this host: one run at a time, for a limited time, whoever started it and from wherever.

Argument (JSON object), `op` is one of

* `take`     {op, run, operator, machine, pid, boot, ttl_s, dead: HOLDER|null}. Takes the lock, or goes on holding it (the
  same run again: after its death, or to renew). Answer: {taken: true, path, until, broke: HOLDER|null} or
  {taken: false, path, holder: HOLDER, why}.
* `release`  {op, run}. Gives it back if that run holds it. Answer: {released: bool}.
* `read`     {op}. Answer: {holder: HOLDER|null, path}.

HOLDER is {run, operator, machine, pid, boot, since, until}; times are seconds since 1970 by this host's clock. A lock whose
`until` has passed is broken by the next one who takes it (`broke`), and so is `dead`, whose process the asker knows to be
gone. `places` (list of folders) or OPSAGENT_LOCK_DIR replaces the usual ones.
An answer with `error` means that no lock could be made.

Only root can write under /var/lib. Others take theirs under /run/lock or /tmp, and everybody looks at all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT_ONLY = "/var/lib/opsagent"
PLACES = (ROOT_ONLY, "/run/lock", "/tmp")
NAME = "opsagent-host.lock"


@contextlib.contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """One process at a time in this folder: reading, breaking and taking are one step. Freed by the kernel on any death."""
    path = folder / f"{NAME}.guard"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def holder(folder: Path) -> dict[str, Any] | None:
    """Who is written down here. What cannot be read as a holder is none: locks are written whole or not at all."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("until"), (int, float)) else None


def write(folder: Path, value: dict[str, Any]) -> None:
    part = folder / f".{NAME}.{os.getpid()}.part"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / NAME)
    except BaseException:
        part.unlink()
        raise


def mine(places: list[Path]) -> Path:
    """The folder in which this user can make the lock."""
    for place in places:
        if str(place) == ROOT_ONLY and os.geteuid() == 0:
            place.mkdir(parents=True, exist_ok=True, mode=0o755)
        if place.is_dir() and os.access(place, os.W_OK):
            return place
    raise OSError(f"none of {', '.join(map(str, places))} can be written")


def take(wanted: dict[str, Any], places: list[Path]) -> dict[str, Any]:
    own, now = mine(places), time.time()
    broke = None
    with guarded(own):
        for place in places:
            seen = holder(place)
            if seen is None or seen.get("run") == wanted["run"]:
                continue
            if seen["until"] > now and seen != wanted.get("dead"):
                return {"taken": False, "path": str(place / NAME), "holder": seen, "why": "held"}
            if place != own:
                try:
                    (place / NAME).unlink()
                except OSError:
                    return {
                        "taken": False,
                        "path": str(place / NAME),
                        "holder": seen,
                        "why": "expired, but not ours to remove",
                    }
            broke = seen
        before = holder(own)
        since = before["since"] if before and before.get("run") == wanted["run"] else now
        keys = ("run", "operator", "machine", "pid", "boot")
        value = {**{key: wanted.get(key) for key in keys}, "since": since, "until": now + float(wanted["ttl_s"])}
        write(own, value)
    return {"taken": True, "path": str(own / NAME), "until": value["until"], "broke": broke}


def release(wanted: dict[str, Any], places: list[Path]) -> dict[str, Any]:
    released = False
    for place in places:
        seen = holder(place)
        if seen is None or seen.get("run") != wanted["run"]:
            continue
        with guarded(place):
            again = holder(place)
            if again is not None and again.get("run") == wanted["run"]:
                (place / NAME).unlink()
                released = True
    return {"released": released}


def read(places: list[Path]) -> dict[str, Any]:
    for place in places:
        seen = holder(place)
        if seen is not None:
            return {"holder": seen, "path": str(place / NAME)}
    return {"holder": None, "path": ""}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    chosen = os.environ.get("OPSAGENT_LOCK_DIR")
    places = [Path(each) for each in wanted.get("places") or ([chosen] if chosen else PLACES)]
    try:
        if wanted["op"] == "take":
            answer = take(wanted, places)
        else:
            answer = release(wanted, places) if wanted["op"] == "release" else read(places)
    except OSError as problem:
        answer = {"error": str(problem)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
