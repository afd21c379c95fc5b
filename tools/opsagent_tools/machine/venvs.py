"""Python environments for serving, and whether they fit the cards of the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from opsagent_tools import probes
from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host

ROOTS = ("/opt", "/srv", "/root", "/home", "/usr/local")
DEPTH = 4


class Venv(BaseModel):
    """One environment. Versions are null when the package is not there."""

    path: str
    python: str | None = None
    sglang: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    vllm: str | None = None
    flashinfer: str | None = None
    kernels: list[str] = []
    """Packages of SGLang's kernels; both `sgl-kernel` and `sglang-kernel` in one environment is a fault."""
    transformers: str | None = None
    huggingface_hub: str | None = None
    moved_from: str | None = None
    """It was copied: its scripts name another folder."""
    arch_list: list[str] = []
    """GPU generations that its torch was built for (`sm_86`); [] when not asked."""
    fits: bool | None = None
    """Whether its torch has code for every card of the host; null: not known."""
    cause: str | None = None
    words: str = ""


def read_venvs(
    host: Host, capabilities: Sequence[str], roots: Sequence[str] = ROOTS, *, deep: bool = True
) -> list[Venv]:
    """Environments under `roots`. With `deep`, those that have torch are asked what they were built for (seconds each).

    `capabilities`: compute capabilities of the cards, `8.6`.
    """
    try:
        got = probes.ask(host, "venvs", {"roots": list(roots), "depth": DEPTH}, timeout_s=60)
    except ToolFailed:
        return []
    found = [Venv(**one) for one in got["venvs"]]
    for venv in [v for v in found if v.torch][:6] if deep else []:
        _ask(host, venv, capabilities)
    return found


def _ask(host: Host, venv: Venv, capabilities: Sequence[str]) -> None:
    try:
        got: dict[str, Any] = probes.ask(host, "venv", {}, python=f"{venv.path}/bin/python", timeout_s=180)
    except ToolFailed as error:
        venv.words = error.what
        return
    venv.arch_list, venv.words = got["arch_list"], got["error"] or ""
    venv.torch, venv.torch_cuda = got["torch"] or venv.torch, got["cuda"] or venv.torch_cuda
    if venv.arch_list and capabilities:
        missing = [cap for cap in capabilities if not covers(venv.arch_list, cap)]
        venv.fits = not missing
        if missing:
            venv.cause = "torch-build-predates-gpu"
            have = ", ".join(venv.arch_list)
            venv.words = f"torch {venv.torch} has code for {have}, not for compute capability {', '.join(missing)}"


def covers(arch_list: Sequence[str], capability: str) -> bool:
    """Whether code of one of the architectures runs on a card: same major number, minor not above the card's (CUDA's rule
    for binary code; architecture-specific builds such as `sm_90a` run only on their own)."""
    major, _, minor = capability.partition(".")
    for arch in arch_list:
        found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
        if not found or found[1] != major:
            continue
        if found[2] == minor or (not found[3] and int(found[2]) < int(minor)):
            return True
    return False
