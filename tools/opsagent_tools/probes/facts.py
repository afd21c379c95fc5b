# opsagent probe: facts
"""Facts that the gate asks before an action, and again right before its effect. Reads only.

Argument: {keys: [str]}. Answer: {facts: {KEY: VALUE}}; a fact that cannot be found out is left out. Keys:

* `path:/x`  {real: str, exists: bool, kind: "file"|"dir"|"block"|"char"|"other"|"", size: int, mtime: int}; size and mtime
  (seconds) only of files. `real` is the path with every link resolved, also of a file that does not exist yet.
* `sha:/x`   sha256 of a file of at most 16 MiB.
* `exe:name` path of the program that the name runs here, or null.
* `pid:12`   {name, start: ticks since boot, unit: last part of its cgroup, cgroup, since: seconds since the epoch, to the
  minute} or null when there is no such process.
* `port:80`  {free: bool, owner: str}: whether nobody listens on this TCP port.
* `gpus`     {free: bool, busy: [int]}: indices of the GPUs that have 700 MiB or more in use.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

BIG = 16 << 20
QUIET_MIB = 700


def path(name: str) -> dict[str, Any]:
    real = os.path.realpath(name)
    try:
        found = Path(real).stat()
    except OSError:
        return {"real": real, "exists": False, "kind": ""}
    tests = (("file", stat.S_ISREG), ("dir", stat.S_ISDIR), ("block", stat.S_ISBLK), ("char", stat.S_ISCHR))
    kind = next((name for name, test in tests if test(found.st_mode)), "other")
    answer: dict[str, Any] = {"real": real, "exists": True, "kind": kind}
    if kind == "file":
        answer.update(size=found.st_size, mtime=int(found.st_mtime))
    return answer


def sha(name: str) -> str:
    if Path(name).stat().st_size > BIG:
        raise OSError("too big")
    return hashlib.sha256(Path(name).read_bytes()).hexdigest()


def pid(number: str) -> dict[str, Any] | None:
    folder = Path("/proc") / number
    try:
        head, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        groups = (folder / "cgroup").read_text().split("\n")
    except OSError:
        return None
    ticks = int(rest.split()[19])
    boot = next(
        int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")
    )
    since = boot + ticks // os.sysconf("SC_CLK_TCK")
    cgroup = next((line.split(":", 2)[2] for line in groups if line.startswith("0::")), groups[0].rpartition(":")[2])
    name = head.partition("(")[2]
    return {
        "name": name,
        "start": ticks,
        "unit": cgroup.rpartition("/")[2],
        "cgroup": cgroup,
        "since": since // 60 * 60,
    }


def port(number: str) -> dict[str, Any]:
    wanted = f"{int(number):04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[1].rpartition(":")[2] == wanted:
                    return {"free": False, "owner": f"inode {words[9]}"}
    return {"free": True, "owner": ""}


def gpus() -> dict[str, Any]:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    busy = [index for index, mib in enumerate(done.stdout.split()) if int(mib) >= QUIET_MIB]
    return {"free": not busy, "busy": busy}


def fact(key: str) -> Any:
    kind, _, rest = key.partition(":")
    if kind == "exe":
        return shutil.which(rest)
    if kind == "gpus":
        return gpus()
    return {"path": path, "sha": sha, "pid": pid, "port": port}[kind](rest)


def main() -> None:
    found = {}
    for key in json.loads(sys.argv[1])["keys"]:
        with contextlib.suppress(OSError, KeyError, ValueError, IndexError, StopIteration, subprocess.SubprocessError):
            found[key] = fact(key)
    print(json.dumps({"facts": found}))


main()
