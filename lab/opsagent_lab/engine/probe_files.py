"""Probe `file`: reads and writes one file whole or not at all, keeps backups, restores them, writes sysfs attributes."""

from __future__ import annotations

import hashlib
import posixpath
import re
from typing import Any

from opsagent_lab.files import digest
from opsagent_lab.program import Process
from opsagent_lab.state import Node

_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


def probe_file(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    actions = {"read": _read, "write": _write, "restore": _restore, "attribute": _attribute}
    return actions[wanted["op"]](process, wanted)


def _text(data: bytes, limit: int) -> str | None:
    if len(data) > limit:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _read(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    path = process.path(wanted["path"])
    node = process.files.find(path, follow=False)
    if node is None:
        return {"exists": False}
    mode = oct(node.mode & 0o7777)[2:].zfill(4)
    answer: dict[str, Any] = {"exists": True, "size": node.size, "mode": mode, "sha256": "", "text": None}
    if node.kind == "link":
        return {**answer, "kind": "link", "target": process.files.resolve(path)}
    if node.kind != "file":
        return {**answer, "kind": "dir" if node.kind == "dir" else "other"}
    data = process.files.read(path, 0, (1 << 20) + 1)
    text = _text(data, wanted.get("limit", 1 << 20)) if node.size <= len(data) else None
    return {**answer, "kind": "file", "sha256": digest(node), "text": text}


def _current(process: Process, path: str) -> tuple[Node | None, str]:
    node = process.files.find(path, follow=False)
    if node is not None and node.kind == "link":
        return None, f"{path} is a link to {process.files.resolve(path)}: name that file"
    if node is not None and node.kind == "dir":
        return None, f"{path} is a directory"
    return node, ""


def _unexpected(node: Node | None, expect: str | None) -> str:
    now = digest(node) if node is not None else ""
    if expect is None or now == expect:
        return ""
    return "it is not what was expected: " + ("it does not exist" if node is None else f"sha256 is {now}")


def _write(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    path, data = process.path(wanted["path"]), process.stdin.read()
    old, refusal = _current(process, path)
    refusal = refusal or _unexpected(old, wanted.get("expect"))
    if refusal:
        return {"error": refusal}
    files = process.files
    if wanted.get("parents"):
        files.mkdir(posixpath.dirname(path), parents=True)
    before = digest(old) if old is not None else None
    was = files.read(path, 0, 1 << 20) if old is not None else None
    backup = None
    if old is not None and was != data and wanted.get("backup"):
        name = path.strip("/").replace("/", "__") + f".{before[:12] if before else ''}"
        backup = posixpath.join(process.path(wanted["backup"]), name)
        files.put(backup, Node(data=was or b"", size=old.size, mode=old.mode))
    if was != data:
        files.write(path, data)
    if wanted.get("mode"):
        files.get(path).mode = int(wanted["mode"], 8)
    process.world.count(process.host, "writes")
    return {
        "before": before,
        "after": hashlib.sha256(data).hexdigest(),
        "created": old is None,
        "backup": backup,
        "text": _text(was, 1 << 18) if was is not None else None,
    }


def _restore(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    path = process.path(wanted["path"])
    now, refusal = _current(process, path)
    refusal = refusal or _unexpected(now, wanted.get("expect"))
    if refusal:
        return {"error": refusal}
    before = digest(now) if now is not None else None
    if not wanted.get("from"):
        if now is not None:
            process.files.unlink(path)
        return {"before": before, "after": None}
    source = process.files.get(process.path(wanted["from"]))
    process.files.write(path, process.files.read(process.path(wanted["from"])))
    process.files.get(path).mode = source.mode
    return {"before": before, "after": digest(process.files.get(path))}


def _content(process: Process, path: str) -> str | None:
    try:
        return process.files.text(path).strip("\n")
    except OSError:
        return None


def _driver(process: Process, path: str, value: str) -> str | None:
    found = _ADDRESS.search(value) or _ADDRESS.search(path)
    if not found:
        return None
    machine = process.world.machine(process.host)
    device = next((d for d in machine.pci if d.address == found.group(0).lower()), None)
    return (device.driver or "none") if device else "none"


def _attribute(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    path, value = process.path(wanted["path"]), str(wanted["value"])
    before, held = _content(process, path), _driver(process, path, value)
    process.files.write(path, f"{value}\n".encode())
    return {
        "before": before,
        "after": _content(process, path),
        "driver_before": held,
        "driver_after": _driver(process, path, value),
    }
