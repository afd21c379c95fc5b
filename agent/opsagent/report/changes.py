"""What changed on the hosts: computed from the snapshots that the run took before and after, not narrated."""

from __future__ import annotations

import re
from typing import Any

from opsagent.report.evidence import Evidence
from opsagent.report.model import Change


def changed(seen: Evidence) -> list[Change]:
    """Differences between the `before` and `after` snapshot of each host, and the writes of calls that say theirs."""
    found: list[Change] = []
    events = {(e.data.get("host"), e.data.get("phase")): e.id for e in seen.events if e.type == "snapshot"}
    for host in sorted({key.rsplit("/", 1)[0] for key in seen.state.snapshots}):
        before = seen.state.snapshots.get(f"{host}/before")
        after = seen.state.snapshots.get(f"{host}/after")
        if before is None or after is None:
            continue
        evidence = [events[(host, phase)] for phase in ("before", "after")]
        found += [
            Change(host=host, what=what, before=_text(old), after=_text(new), evidence=evidence)
            for what, old, new in differences(before, after)
        ]
    seen_by_pictures = {(change.host, change.what.rpartition(" ")[2]) for change in found}
    return found + [change for change in _written(seen) if (change.host, change.what) not in seen_by_pictures]


def differences(before: Any, after: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """(path, old, new) of every leaf that differs; lists are compared whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in sorted({*before, *after}):
            name = f"{path} {key}".strip() if path else str(key)
            found += differences(before.get(key), after.get(key), name)
        return found
    return [] if before == after else [(path, before, after)]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return f"sha256:{value}" if re.fullmatch(r"[0-9a-f]{64}", str(value)) else str(value)


def _written(seen: Evidence) -> list[Change]:
    """Files, environments and models that calls made, with what they say was there before."""
    found: list[Change] = []
    for call in seen.state.calls.values():
        result, event = call.result or {}, call.events.get("call.finished")
        if call.status != "finished" or not call.ok or not event:
            continue
        if call.call.tool in ("write_file", "write_sysfs"):
            before, after = result.get("before"), result.get("after")
            mark = "sha256:" if call.call.tool == "write_file" else ""
            found.append(
                Change(
                    host=call.call.host,
                    what=str(result.get("path") or call.call.args.get("path")),
                    before=f"{mark}{before}" if before else "",
                    after=f"{mark}{after}" if after else "",
                    evidence=[event],
                )
            )
        elif call.call.tool in ("install_env", "download_model"):
            what = str(result.get("path") or call.call.args.get("path") or call.call.args.get("venv") or "")
            found.append(
                Change(host=call.call.host, what=what, after=str(result.get("summary") or "new"), evidence=[event])
            )
    return found
