# opsagent probe: procs
"""Processes where there is no `ps`.

Argument: {}. Answer: {processes: [{pid, parent, group, session, user, age_s, state, argv: [str]}]}; a kernel thread's argv
is its name in brackets.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from pathlib import Path
from typing import Any


def describe(pid: str, uptime: float, ticks: int) -> dict[str, Any]:
    folder = Path("/proc") / pid
    head, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
    fields = rest.split()
    words = (folder / "cmdline").read_bytes().rstrip(b"\0").decode("utf-8", "replace")
    argv = words.split("\0") if words else [f"[{head.partition('(')[2]}]"]
    uid = folder.stat().st_uid
    user = str(uid)
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(uid).pw_name
    age = max(0, int(uptime - int(fields[19]) / ticks))
    return {
        "pid": int(pid), "parent": int(fields[1]), "group": int(fields[2]), "session": int(fields[3]), "user": user,
        "age_s": age, "state": fields[0], "argv": argv,
    }  # fmt: skip


def main() -> None:
    uptime, ticks = float(Path("/proc/uptime").read_text().split()[0]), os.sysconf("SC_CLK_TCK")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):  # it ended while we looked
                found.append(describe(entry.name, uptime, ticks))
    print(json.dumps({"processes": sorted(found, key=lambda row: row["pid"])}))


main()
