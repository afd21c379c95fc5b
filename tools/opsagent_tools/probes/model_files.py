# opsagent probe: model_files
"""What a model directory holds: configuration, index, and the headers of the weight files (run by the system's python3).

Argument: {path: "/srv/models/X", headers: true}. Answer:
{path, found: bool, config: {…}|null, config_error: str|null, quant_config: {…}|null (hf_quant_config.json),
 index: {total_size: int|null, files: [str]}|null, index_error: str|null,
 shards: [{name, size, state: ""|"missing"|"truncated"|"pointer"|"damaged", expected: int|null}],
 groups: [{name: "model.layers.#.mlp.down_proj.weight", dtype: "BF16", tensors: int, elements: int, bytes: int}],
 tensors: int, bytes: int, unfinished: [str], files: [str], free_bytes: int|null}.
`shards` are the files that the index promises, without an index the *.safetensors that are there. `size` 0 and `expected`
null when a file is missing. `expected` is the length that its own header promises. In `groups` runs of digits of tensor
names are `#`. `unfinished` are leftovers of a download (`*.incomplete`, `*.part`). `found` is false when the path is
no directory.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

LFS = b"version https://git-lfs"
HEADER_LIMIT = 256 << 20
DIGITS = re.compile(r"\d+")


def read_json(path: Path) -> tuple[Any, str | None]:
    """(value, None), (None, None) when there is no file, (None, words) when it cannot be read."""
    try:
        with path.open(encoding="utf-8") as stream:
            return json.load(stream), None
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, f"{type(error).__name__}: {error}"[:300]


def header_of(path: Path) -> tuple[dict[str, Any] | None, str, int | None]:
    """(tensors, state, promised length) of one safetensors file: its header is a length of 8 bytes and JSON."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        first = stream.read(8)
        if first == LFS[:8]:
            return None, "pointer", None
        if len(first) < 8:
            return None, "truncated", None
        length = struct.unpack("<Q", first)[0]
        if length > HEADER_LIMIT:
            return None, "damaged", None
        if 8 + length > size:
            return None, "truncated", None
        try:
            header = json.loads(stream.read(length))
        except ValueError:
            return None, "damaged", None
    header.pop("__metadata__", None)
    promised = 8 + length + max([entry["data_offsets"][1] for entry in header.values()], default=0)
    state = "" if size == promised else "truncated" if size < promised else "damaged"
    return header, state, promised


def add(groups: dict[tuple[str, str], list[int]], header: dict[str, Any]) -> None:
    """Sum the tensors of one file by name without numbers, and by type."""
    for name, entry in header.items():
        elements = 1
        for width in entry["shape"]:
            elements *= int(width)
        begin, end = entry["data_offsets"]
        row = groups.setdefault((DIGITS.sub("#", name), str(entry["dtype"])), [0, 0, 0])
        row[0] += 1
        row[1] += elements
        row[2] += end - begin


def describe(path: str, headers: bool = True) -> dict[str, Any]:
    """The answer, see the top."""
    folder = Path(path)
    answer: dict[str, Any] = {
        "path": path, "found": folder.is_dir(), "config": None, "config_error": None, "quant_config": None, "index": None,
        "index_error": None, "shards": [], "groups": [], "tensors": 0, "bytes": 0, "unfinished": [], "files": [],
        "free_bytes": None,
    }  # fmt: skip
    if not answer["found"]:
        return answer
    names = sorted(entry.name for entry in folder.iterdir())
    answer["files"] = [name for name in names if not name.endswith(".safetensors")][:100]
    answer["config"], answer["config_error"] = read_json(folder / "config.json")
    answer["quant_config"] = read_json(folder / "hf_quant_config.json")[0]
    index, answer["index_error"] = read_json(folder / "model.safetensors.index.json")
    wanted = [name for name in names if name.endswith(".safetensors")]
    if isinstance(index, dict) and isinstance(index.get("weight_map"), dict):
        total = (index.get("metadata") or {}).get("total_size")
        wanted = sorted({str(name) for name in index["weight_map"].values()})
        answer["index"] = {"total_size": total if isinstance(total, int) else None, "files": wanted}
    groups: dict[tuple[str, str], list[int]] = {}
    answer["shards"] = [look(folder / name, headers, groups) for name in wanted]
    answer["groups"] = [
        {"name": name, "dtype": dtype, "tensors": row[0], "elements": row[1], "bytes": row[2]}
        for (name, dtype), row in sorted(groups.items())
    ]
    answer["tensors"] = sum(row[0] for row in groups.values())
    answer["bytes"] = sum(row[2] for row in groups.values())
    answer["unfinished"] = unfinished(folder)
    answer["free_bytes"] = shutil.disk_usage(path).free
    return answer


def look(where: Path, headers: bool, groups: dict[tuple[str, str], list[int]]) -> dict[str, Any]:
    """One weight file: its state, and its tensors added to `groups`."""
    if not where.is_file():
        return {"name": where.name, "size": 0, "state": "missing", "expected": None}
    try:
        header, state, promised = header_of(where) if headers else (None, "", None)
        if header:
            add(groups, header)
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError):
        state, promised = "damaged", None
    return {"name": where.name, "size": where.stat().st_size, "state": state, "expected": promised}


def unfinished(path: Path) -> list[str]:
    """Leftovers of a download, also in huggingface_hub's folder beside the files."""
    found = []
    for folder in (path, path / ".cache" / "huggingface" / "download"):
        if folder.is_dir():
            names = sorted(entry.name for entry in folder.iterdir())
            found += [name for name in names if name.endswith((".incomplete", ".part", ".tmp"))]
    return found[:50]


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(describe(asked["path"], bool(asked.get("headers", True)))))
