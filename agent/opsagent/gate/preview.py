"""What a write would change, for the person who is asked: a unified diff of a file, the old value of an attribute."""

from __future__ import annotations

import difflib

from opsagent.call import Call
from opsagent_tools import probes
from opsagent_tools.errors import OpsError
from opsagent_tools.host import Host

BIGGEST = 256 << 10
"""Bytes; of bigger files no diff is shown."""


def diff_of(call: Call, host: Host) -> str:
    """The change that a write_file or write_sysfs call would make; '' for other calls, or when it cannot be known."""
    path = call.args.get("path")
    if call.tool not in ("write_file", "write_sysfs") or not isinstance(path, str):
        return ""
    new = call.args.get("content" if call.tool == "write_file" else "value")
    if not isinstance(new, str):
        return ""
    try:
        found = probes.ask(host, "file", {"op": "read", "path": path, "limit": BIGGEST}, timeout_s=20.0)
    except OpsError as error:
        return f"(the present content could not be read: {error.what})"
    if found.get("exists") and not isinstance(found.get("text"), str):
        return f"({path} is a {found.get('kind', 'thing')} whose content is not shown)"
    old = str(found.get("text") or "") if found.get("exists") else ""
    name = path if found.get("exists") else f"{path} (new)"
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, path, "now", "then", lineterm="")
    return "\n".join(lines)
