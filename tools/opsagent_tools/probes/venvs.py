# opsagent probe: venvs
"""Finds Python environments and what is installed in them, without importing anything (run by the system's python3).

Argument: {roots: [str], depth: int}. Answer: {venvs: [{path, python: "3.12.3", sglang, torch, torch_cuda, vllm, flashinfer,
kernels: ["sglang-kernel 0.4.2"], transformers, huggingface_hub, moved_from: str|null}]}.
Versions are null when the package is not there. `moved_from`: its scripts still name another folder, so it was copied.
`torch_cuda` is what torch/version.py says (`13.0`), null for a CPU build.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("sglang", "torch", "transformers", "huggingface_hub", "vllm")
SKIP = {"proc", "sys", "dev", "run", "node_modules", "site-packages", ".git", "lxc", "blobs"}


def environments(roots: list[str], depth: int) -> list[Path]:
    found: list[Path] = []
    queue = [(Path(root), 0) for root in roots]
    while queue:
        folder, level = queue.pop(0)
        if (folder / "pyvenv.cfg").is_file():
            found.append(folder)
            continue
        if level >= depth:
            continue
        with contextlib.suppress(OSError):
            below = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
            queue += [(folder / name, level + 1) for name in below if name not in SKIP]
    return found


def installed(site: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(site):
            match = re.fullmatch(r"(.+)-([^-]+)\.dist-info", entry.name)
            if match:
                names[match.group(1).lower().replace("-", "_")] = match.group(2)
    return names


def torch_cuda(site: Path) -> str | None:
    with contextlib.suppress(OSError):
        match = re.search(r"^cuda[^=]*= *'([^']+)'", (site / "torch" / "version.py").read_text(), re.M)
        return match.group(1) if match else None
    return None


def moved(folder: Path) -> str | None:
    """Where its scripts think that it lies, when that is somewhere else."""
    for name in ("pip", "sglang", "hf", "uvicorn"):
        with contextlib.suppress(OSError):
            with (folder / "bin" / name).open("rb") as script:
                first = script.readline(300).decode("utf-8", "replace").strip()
            if first.startswith("#!/") and "/bin/python" in first:
                home = first[2:].rpartition("/bin/")[0]
                return None if os.path.realpath(home) == os.path.realpath(folder) else home
    return None


def describe(folder: Path) -> dict[str, Any]:
    settings: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in (folder / "pyvenv.cfg").read_text().splitlines():
            key, _, value = line.partition("=")
            settings[key.strip()] = value.strip()
    sites = sorted((folder / "lib").glob("python3*/site-packages")) if (folder / "lib").is_dir() else []
    names = installed(sites[0]) if sites else {}
    kernels = [f"{key.replace('_', '-')} {names[key]}" for key in ("sgl_kernel", "sglang_kernel") if key in names]
    return {
        "path": str(folder), "python": settings.get("version") or settings.get("version_info"),
        **{key: names.get(key) for key in PACKAGES}, "torch_cuda": torch_cuda(sites[0]) if sites else None,
        "flashinfer": names.get("flashinfer_python"), "kernels": kernels, "moved_from": moved(folder),
    }  # fmt: skip


def main() -> None:
    wanted = json.loads(sys.argv[1])
    print(json.dumps({"venvs": [describe(folder) for folder in environments(wanted["roots"], wanted["depth"])[:40]]}))


main()
