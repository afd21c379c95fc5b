"""Probe `download`: what the simulated hub has, what is in a folder, whether it is right."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from opsagent_lab.engine import catalogue, hub
from opsagent_lab.engine.hub import HubError, Wish
from opsagent_lab.files import digest, on_disk
from opsagent_lab.program import Process

_NOTES = ".cache/huggingface/download"
_HASH_RATE = 1.2e9


def probe_download(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    return {"plan": _plan, "seen": _seen, "clean": _clean, "verify": _verify}[wanted["op"]](process, wanted)


def _plan(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    token = process.stdin.read().decode().strip()
    repo = catalogue.find(wanted["repo"]) or wanted["repo"]
    try:
        files = hub.listing(process, Wish(repo, "/", token=token))
    except HubError as problem:
        status = problem.status or (404 if problem.kind == "missing-repo" else 0)
        bad = {"status": status, "words": problem.message, "retry_after": problem.retry_after}
        return {"commit": "", "files": [], "error": bad}
    listed = [
        {"name": f.name, "size": f.size, "sha256": f.sha256 if f.lfs else None, "blob": f.sha256[:40]} for f in files
    ]
    return {"commit": catalogue.commit_of(repo), "files": listed, "error": None}


def _unfinished(process: Process, folder: str) -> list[str]:
    where = posixpath.join(folder, _NOTES)
    if not process.files.is_dir(where):
        return []
    return [path for path, _node in process.files.walk(where) if path.endswith(".incomplete")]


def _seen(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    nodes = {name: process.files.find(posixpath.join(wanted["path"], name)) for name in wanted["names"]}
    sizes = {name: node.size for name, node in nodes.items() if node is not None}
    half = _unfinished(process, wanted["path"])
    total = sum(sizes.values()) + sum(on_disk(process.files.get(path)) for path in half)
    return {"bytes": total, "sizes": sizes, "unfinished": len(half), "free": process.files.free(wanted["path"])}


def _clean(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    folder = wanted["path"]
    named = [posixpath.join(folder, part) for n in wanted["names"] for part in (n, f"{_NOTES}/{n}.metadata")]
    gone = [path for path in [*_unfinished(process, folder), *named] if process.files.exists(path)]
    for path in gone:
        process.files.unlink(path)
    return {"removed": len(gone)}


def _verify(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    total, done, bad = sum(one["size"] for one in wanted["files"]), 0, []
    for one in wanted["files"]:
        process.write_out(json.dumps({"at": one["name"], "done": done, "total": total}) + "\n")
        process.sleep(one["size"] / _HASH_RATE)
        done += one["size"]
        node = process.files.find(posixpath.join(wanted["path"], one["name"]))
        if node is None:
            bad.append({"name": one["name"], "why": "missing"})
        elif node.size != one["size"]:
            bad.append({"name": one["name"], "why": "size"})
        elif not digest(node).startswith(one["sha256"] or one["blob"]):
            bad.append({"name": one["name"], "why": "hash"})
    return {"good": len(wanted["files"]) - len(bad), "bad": bad}
