"""Probe `model_files`: what a model directory holds, read from the simulated files (their headers are real ones)."""

from __future__ import annotations

import json
import posixpath
import re
import struct
from typing import Any

from opsagent_lab.engine.modeldir import LFS
from opsagent_lab.files import Files
from opsagent_lab.program import Process

_DIGITS = re.compile(r"\d+")
_Groups = dict[tuple[str, str], list[int]]


def probe_model_files(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    return describe(process.files, process.path(wanted["path"]), bool(wanted.get("headers", True)))


def describe(files: Files, path: str, headers: bool = True) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "path": path, "found": files.is_dir(path), "config": None, "config_error": None, "quant_config": None, "index": None,
        "index_error": None, "shards": [], "groups": [], "tensors": 0, "bytes": 0, "unfinished": [], "files": [],
        "free_bytes": None,
    }  # fmt: skip
    if not answer["found"]:
        return answer
    names = files.listdir(path)
    answer["files"] = [name for name in names if not name.endswith(".safetensors")][:100]
    answer["config"], answer["config_error"] = _json(files, posixpath.join(path, "config.json"))
    answer["quant_config"] = _json(files, posixpath.join(path, "hf_quant_config.json"))[0]
    index, answer["index_error"] = _json(files, posixpath.join(path, "model.safetensors.index.json"))
    weights = [name for name in names if name.endswith(".safetensors")]
    if isinstance(index, dict) and isinstance(index.get("weight_map"), dict):
        weights = sorted(set(index["weight_map"].values()))
        answer["index"] = {"total_size": (index.get("metadata") or {}).get("total_size"), "files": weights}
    groups: _Groups = {}
    answer["shards"] = [_shard(files, path, name, headers, groups) for name in weights]
    answer["groups"] = [
        {"name": name, "dtype": dtype, "tensors": row[0], "elements": row[1], "bytes": row[2]}
        for (name, dtype), row in sorted(groups.items())
    ]
    answer["tensors"] = sum(row[0] for row in groups.values())
    answer["bytes"] = sum(row[2] for row in groups.values())
    answer["unfinished"] = _unfinished(files, path)
    answer["free_bytes"] = files.free(path)
    return answer


def _json(files: Files, path: str) -> tuple[Any, str | None]:
    if not files.exists(path):
        return None, None
    try:
        return json.loads(files.text(path)), None
    except ValueError as problem:
        return None, f"{type(problem).__name__}: {problem}"[:300]


def _shard(files: Files, path: str, name: str, headers: bool, groups: _Groups) -> dict[str, Any]:
    node = files.find(posixpath.join(path, name))
    if node is None or node.kind != "file":
        return {"name": name, "size": 0, "state": "missing", "expected": None}
    header, state, promised = _header(node.data, node.size) if headers else (None, "", None)
    for tensor, entry in (header or {}).items():
        elements = 1
        for width in entry["shape"]:
            elements *= int(width)
        begin, end = entry["data_offsets"]
        row = groups.setdefault((_DIGITS.sub("#", tensor), str(entry["dtype"])), [0, 0, 0])
        row[0] += 1
        row[1] += elements
        row[2] += end - begin
    return {"name": name, "size": node.size, "state": state, "expected": promised}


def _header(data: bytes, size: int) -> tuple[dict[str, Any] | None, str, int | None]:
    if data[:8] == LFS[:8]:
        return None, "pointer", None
    if size < 8:
        return None, "truncated", None
    length = struct.unpack("<Q", data[:8].ljust(8, b"\0"))[0]
    if 8 + length > size:
        return None, "truncated", None
    try:
        header: dict[str, Any] = json.loads(data[8 : 8 + length])
    except ValueError:
        return None, "damaged", None
    header.pop("__metadata__", None)
    promised = 8 + length + max([entry["data_offsets"][1] for entry in header.values()], default=0)
    return header, "" if size == promised else "truncated" if size < promised else "damaged", promised


def _unfinished(files: Files, path: str) -> list[str]:
    found: list[str] = []
    for folder in (path, posixpath.join(path, ".cache/huggingface/download")):
        if files.is_dir(folder):
            found += [name for name in files.listdir(folder) if name.endswith((".incomplete", ".part", ".tmp"))]
    return found[:50]
