"""What runs teach about a host: how far the planner was off there, and how long each phase and each kind of call takes.

One small JSON file per host under `$XDG_STATE_HOME/opsagent/history/`. It is advice, never a fact that a run depends on: a
broken or missing file means no history. Simulated hosts teach nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opsagent.journal.state import CallState, RunState
from opsagent.xdg import state_home
from opsagent_tools.sglang.calibration import observe, remember

KEPT = 5
"""Durations that are kept of each tool."""
TIMED = frozenset({
    "inspect_host", "install_env", "preflight", "launch_sglang", "curl_test", "stop_server", "reboot_host", "estimate_vram"
})  # fmt: skip
"""Tools whose calls on one host take about the same time. (A command or a download takes as long as what it does.)"""


def history_file(host: str, root: Path | None = None) -> Path:
    folder = root or state_home() / "history"
    return folder / (re.sub(r"[^A-Za-z0-9_.-]", "_", host) + ".json")


def load(host: str, root: Path | None = None) -> dict[str, Any]:
    """The history of a host: `planner` (observations, oldest first), `phase_seconds` and `call_seconds`; {}: none."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(history_file(host, root).read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def expected_seconds(history: Mapping[str, Any], tool: str) -> float | None:
    """How long a call of the tool took on this host before (the median of the last ones), in seconds; None: not known."""
    known = history.get("call_seconds")
    took = known.get(tool) if isinstance(known, dict) else None
    numbers = [float(each) for each in took if isinstance(each, int | float)] if isinstance(took, list) else []
    return statistics.median(numbers) if numbers else None


def durations(history: Mapping[str, Any], calls: Iterable[CallState]) -> dict[str, list[float]]:
    """The history's `call_seconds` with the durations of these calls: the last few by tool, newest last."""
    known = history.get("call_seconds")
    found: dict[str, list[float]] = (
        {name: list(took) for name, took in known.items()} if isinstance(known, dict) else {}
    )
    for call in calls:
        if call.ok and call.status == "finished" and call.duration_s > 0 and call.call.tool in TIMED:
            found[call.call.tool] = [*found.get(call.call.tool, []), round(call.duration_s, 1)][-KEPT:]
    return found


def learned(history: Mapping[str, Any], plan: Mapping[str, Any], launch: Mapping[str, Any]) -> dict[str, Any]:
    """The history with one more launch: predicted against logged, and the duration of its phases."""
    logged = {row["name"]: row["logged"] for row in launch.get("compared") or [] if row.get("unit") == "GiB"}
    seen = observe(plan, logged) if plan else {}
    observations = remember(history.get("planner"), seen) if seen else list(history.get("planner") or [])
    return {**history, "planner": observations, "phase_seconds": launch.get("phase_seconds") or {}}


def learn(state: RunState, root: Path | None = None) -> list[str]:
    """Keep what the run taught, by host; returns the hosts. A disk that refuses is not worth an error."""
    plans: dict[str, Mapping[str, Any]] = {}
    hosts: dict[str, dict[str, Any]] = {}
    for call in state.calls.values():
        result = call.result or {}
        if call.call.tool == "estimate_vram" and call.status == "finished":
            plans[call.call.host] = result
        elif call.call.tool == "launch_sglang" and call.ok and result.get("state") == "ready":
            known = hosts.get(call.call.host) or load(call.call.host, root)
            hosts[call.call.host] = learned(known, plans.get(call.call.host, {}), result)
    for host in dict.fromkeys(call.call.host for call in state.calls.values() if call.call.host):
        known = hosts.get(host) or load(host, root)
        took = durations(known, [call for call in state.calls.values() if call.call.host == host])
        if took and took != known.get("call_seconds"):
            hosts[host] = {**known, "call_seconds": took}
    for host, history in hosts.items():
        path = history_file(host, root)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")
            os.replace(fresh, path)  # noqa: PTH105 - atomic, and the name says so
    return sorted(hosts)
