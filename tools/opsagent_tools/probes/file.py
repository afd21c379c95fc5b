# opsagent probe: file
"""Reads and writes one file on the target: whole or not at all, with a backup that lies outside its folder.

Argument (JSON object), `op` is one of

* `read`    {op, path, limit: bytes}. Answer: {exists: bool, kind: "file"|"dir"|"link"|"other", target: str (of a link),
  size: int, mode: "0644", sha256: str, text: str|null (null: larger than limit, or not UTF-8)}.
* `write`   {op, path, mode: "0644"|null, expect: sha256|""|null, backup: FOLDER|null, parents: bool}; stdin: the text.
  `expect` is the sha256 that the file must have now ("" = must not exist, null = anything). Answer: {before: sha256|null,
  after: sha256, created: bool, backup: path|null, text: str|null (what it was)}.
* `restore` {op, path, from: path|null, expect: sha256|null}. Puts a backup back; `from` null removes the file (it had been
  created by the write that is undone). Answer: {before, after: sha256|null}.
* `attribute` {op, path, value}. Writes a sysfs or proc attribute. Answer: {before: str|null, after: str|null,
  driver_before: str|null, driver_after: str|null}: the driver of the PCI device that path or value names.

An answer with `error` means that nothing was changed (for `attribute`: the kernel refused the value).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.I)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def text_of(data: bytes, limit: int) -> str | None:
    if len(data) > limit:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def read(wanted: dict[str, Any]) -> dict[str, Any]:
    path = Path(wanted["path"])
    try:
        found = path.lstat()
    except FileNotFoundError:
        return {"exists": False}
    mode = oct(stat.S_IMODE(found.st_mode))[2:].zfill(4)
    answer: dict[str, Any] = {"exists": True, "size": found.st_size, "mode": mode, "sha256": "", "text": None}
    if stat.S_ISLNK(found.st_mode):
        return {**answer, "kind": "link", "target": os.path.realpath(path)}
    if not stat.S_ISREG(found.st_mode):
        return {**answer, "kind": "dir" if stat.S_ISDIR(found.st_mode) else "other"}
    data = path.read_bytes()
    text = text_of(data, wanted.get("limit", 1 << 20))
    return {**answer, "kind": "file", "sha256": digest(data), "size": len(data), "text": text}


def put(path: Path, data: bytes, mode: int | None, like: os.stat_result | None) -> None:
    """Write beside it, then rename: a reader sees the old file or the new one. Keeps owner and mode of the old one."""
    part = path.with_name(f".{path.name}.opsagent.{os.getpid()}.tmp")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(PermissionError):  # /etc/pve has fixed owners and modes
            part.chmod(mode if mode is not None else (stat.S_IMODE(like.st_mode) if like else 0o644))
            if like:
                os.chown(part, like.st_uid, like.st_gid)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def current(path: Path) -> tuple[bytes | None, str]:
    """The file's bytes (None: not there) and what speaks against writing it."""
    if path.is_symlink():
        return None, f"{path} is a link to {os.path.realpath(path)}: name that file"
    if path.is_dir():
        return None, f"{path} is a directory"
    return (path.read_bytes() if path.exists() else None), ""


def unexpected(data: bytes | None, expect: str | None) -> str:
    if expect is None:
        return ""
    now = digest(data) if data is not None else ""
    if now == expect:
        return ""
    return "it is not what was expected: " + ("it does not exist" if data is None else f"sha256 is {now}")


def write(wanted: dict[str, Any], data: bytes) -> dict[str, Any]:
    path = Path(wanted["path"])
    old, refusal = current(path)
    refusal = refusal or unexpected(old, wanted.get("expect"))
    if refusal:
        return {"error": refusal}
    if wanted.get("parents"):
        path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    if old is not None and old != data and wanted.get("backup"):
        backup = keep(path, Path(wanted["backup"]), digest(old))
    mode = int(wanted["mode"], 8) if wanted.get("mode") else None
    if old != data or mode is not None:
        put(path, data, mode, path.stat() if old is not None else None)
    return {
        "before": digest(old) if old is not None else None, "after": digest(data), "created": old is None,
        "backup": str(backup) if backup else None, "text": text_of(old, 1 << 18) if old is not None else None,
    }  # fmt: skip


def keep(path: Path, folder: Path, sha256: str) -> Path:
    """Copy the file into the folder of backups; not root: into one under our own home."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except PermissionError:
        folder = Path.home() / ".local/state/opsagent/backups" / folder.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    backup = folder / (str(path).strip("/").replace("/", "__") + "." + sha256[:12])
    shutil.copy2(path, backup)
    return backup


def restore(wanted: dict[str, Any]) -> dict[str, Any]:
    path = Path(wanted["path"])
    now, refusal = current(path)
    refusal = refusal or unexpected(now, wanted.get("expect"))
    if refusal:
        return {"error": refusal}
    before = digest(now) if now is not None else None
    if not wanted.get("from"):
        if now is not None:
            path.unlink()
        return {"before": before, "after": None}
    source = Path(wanted["from"])
    data = source.read_bytes()
    put(path, data, None, source.stat())
    return {"before": before, "after": digest(data)}


def content(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip("\n")
    except OSError:
        return None  # bind, unbind and their like can only be written


def driver(path: str, value: str) -> str | None:
    found = ADDRESS.search(value) or ADDRESS.search(path)
    if not found:
        return None
    link = Path("/sys/bus/pci/devices") / found.group(0).lower() / "driver"
    return Path(os.path.realpath(link)).name if link.exists() else "none"


def attribute(wanted: dict[str, Any]) -> dict[str, Any]:
    path, value = Path(wanted["path"]), wanted["value"]
    before, held = content(path), driver(str(path), value)
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, (value + "\n").encode())
    finally:
        os.close(handle)
    return {"before": before, "after": content(path), "driver_before": held, "driver_after": driver(str(path), value)}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    try:
        if wanted["op"] == "write":
            answer = write(wanted, sys.stdin.buffer.read())
        else:
            answer = {"read": read, "restore": restore, "attribute": attribute}[wanted["op"]](wanted)
    except OSError as error:
        answer = {"error": f"{error.filename or wanted['path']}: {error.strerror}"}
    print(json.dumps(answer))


main()
