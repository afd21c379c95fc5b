"""Probe `lock`: one run writes on a host at a time. Root's place only: everybody is root on the lab's hosts."""

from __future__ import annotations

import json
from typing import Any

from opsagent_lab.program import Process

PATH = "/var/lib/opsagent/opsagent-host.lock"


def probe_lock(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    files, now = process.files, process.world.now()
    with process.world.lock:
        seen = json.loads(files.text(PATH)) if files.exists(PATH) else None
        ours = seen is not None and seen["run"] == wanted.get("run")
        if wanted["op"] == "read":
            return {"holder": seen, "path": PATH if seen else ""}
        if wanted["op"] == "release":
            if ours:
                files.unlink(PATH)
            return {"released": ours}
        if seen is not None and not ours and seen["until"] > now and seen != wanted.get("dead"):
            return {"taken": False, "path": PATH, "holder": seen, "why": "held"}
        keys = ("run", "operator", "machine", "pid", "boot")
        value = {**{key: wanted.get(key) for key in keys}, "since": seen["since"] if ours and seen else now}
        value["until"] = now + float(wanted["ttl_s"])
        files.mkdir("/var/lib/opsagent", parents=True)
        files.write(PATH, json.dumps(value))
        return {"taken": True, "path": PATH, "until": value["until"], "broke": seen if seen and not ours else None}
