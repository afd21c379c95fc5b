# opsagent probe: download
"""A model repository and its copy in a folder: what the hub has, what is here, whether it is right (any python3).

Argument (JSON object), `op` is one of

* `plan`   {op, repo, revision, endpoint}; stdin: a token, or nothing. Answer: {commit: str, files: [{name, size, sha256:
  str|null (of files in large storage), blob: str (git's sha1)}], error: null | {status: int (0: no answer), words: str,
  retry_after: seconds}}.
* `seen`   {op, path, names: [str]}. Answer: {bytes: int (also of unfinished files, as allocated), sizes: {NAME: int},
  unfinished: int, free: bytes}.
* `clean`  {op, path, names: [str]}. Removes unfinished files, and the named ones with what huggingface_hub noted of them.
  Answer: {removed: int}.
* `verify` {op, path, files: as in plan}. Answer: {good: int, bad: [{name, why: "missing"|"size"|"hash"}]}; before it a line
  {at: NAME, done: bytes, total: bytes} for each file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

NOTES = ".cache/huggingface/download"
CHUNK = 8 << 20


def plan(wanted: dict[str, Any], token: str) -> dict[str, Any]:
    url = f"{wanted['endpoint'].rstrip('/')}/api/models/{wanted['repo']}/revision/{wanted['revision']}?blobs=true"
    headers = {"User-Agent": "opsagent", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        wait = error.headers.get("Retry-After", "")
        words = error.headers.get("X-Error-Message") or f"{error.code} {error.reason}"
        bad = {"status": error.code, "words": words, "retry_after": int(wait) if wait.isdigit() else 0}
        return {"commit": "", "files": [], "error": bad}
    except (OSError, ValueError) as error:
        return {"commit": "", "files": [], "error": {"status": 0, "words": str(error), "retry_after": 0}}
    files = [
        {"name": one["rfilename"], "size": one.get("size") or 0, "sha256": (one.get("lfs") or {}).get("sha256"),
         "blob": one.get("blobId") or ""}
        for one in found["siblings"]
    ]  # fmt: skip
    return {"commit": found["sha"], "files": files, "error": None}


def unfinished(folder: Path) -> list[Path]:
    return sorted((folder / NOTES).rglob("*.incomplete")) if (folder / NOTES).is_dir() else []


def seen(wanted: dict[str, Any]) -> dict[str, Any]:
    folder = Path(wanted["path"])
    sizes, total = {}, 0
    for name in wanted["names"]:
        with contextlib.suppress(OSError):
            sizes[name] = (folder / name).stat().st_size
            total += sizes[name]
    half = unfinished(folder)
    for path in half:
        with contextlib.suppress(OSError):
            total += path.stat().st_blocks * 512
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    return {"bytes": total, "sizes": sizes, "unfinished": len(half), "free": shutil.disk_usage(str(at)).free}


def clean(wanted: dict[str, Any]) -> dict[str, Any]:
    folder, removed = Path(wanted["path"]), 0
    named = [p for name in wanted["names"] for p in (folder / name, folder / NOTES / f"{name}.metadata")]
    for path in [*unfinished(folder), *named]:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            removed += 1
    return {"removed": removed}


def why_bad(path: Path, one: dict[str, Any]) -> str:
    """'' for a file that is as the hub says."""
    if not path.is_file():
        return "missing"
    size = path.stat().st_size
    if size != one["size"]:
        return "size"
    if not one["sha256"] and not one["blob"]:
        return ""
    digest = hashlib.sha256() if one["sha256"] else hashlib.sha1(f"blob {size}\0".encode())
    with path.open("rb") as stream:
        for piece in iter(lambda: stream.read(CHUNK), b""):
            digest.update(piece)
    return "" if digest.hexdigest() == (one["sha256"] or one["blob"]) else "hash"


def verify(wanted: dict[str, Any]) -> dict[str, Any]:
    total, done, good, bad = sum(one["size"] for one in wanted["files"]), 0, 0, []
    for one in wanted["files"]:
        print(json.dumps({"at": one["name"], "done": done, "total": total}), flush=True)
        why = why_bad(Path(wanted["path"]) / one["name"], one)
        done += one["size"]
        good += not why
        if why:
            bad.append({"name": one["name"], "why": why})
    return {"good": good, "bad": bad}


def main() -> None:
    wanted = json.loads(sys.argv[1])
    if wanted["op"] == "plan":
        answer = plan(wanted, sys.stdin.read().strip())
    else:
        answer = {"seen": seen, "clean": clean, "verify": verify}[wanted["op"]](wanted)
    print(json.dumps(answer))


main()
