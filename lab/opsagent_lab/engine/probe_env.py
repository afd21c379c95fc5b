"""Probes `venvs` (environments and what is installed) and `venv` (what one was built for, and whether CUDA works in it)."""

from __future__ import annotations

from typing import Any

from opsagent_lab.engine import venvs
from opsagent_lab.gpu_access import access
from opsagent_lab.program import Process
from opsagent_lab.state import Venv

_ALL_ARCHS = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


def probe_venvs(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    found = []
    for prefix, venv in sorted(process.host.venvs.items()):
        inside = any(
            prefix == root or (prefix.startswith(root.rstrip("/") + "/") and _levels(prefix, root) <= wanted["depth"])
            for root in wanted["roots"]
        )
        if inside and process.files.exists(f"{prefix}/bin"):
            found.append(_describe(prefix, venv))
    return {"venvs": found[:40]}


def _levels(prefix: str, root: str) -> int:
    return prefix[len(root.rstrip("/")) :].count("/")


def _describe(prefix: str, venv: Venv) -> dict[str, Any]:
    kernels = [f"{n} {v}" for n in ("sgl-kernel", "sglang-kernel") if (v := venvs.version(venv, n))]
    names = ("sglang", "torch", "transformers", "huggingface_hub", "vllm")
    return {
        "path": prefix,
        "python": venv.python,
        **{name: venvs.version(venv, name) or None for name in names},
        "torch_cuda": venv.cuda or None,
        "flashinfer": venvs.version(venv, "flashinfer-python") or None,
        "kernels": kernels,
        "moved_from": venv.notes.get("moved_from"),
    }


def probe_venv(process: Process, _wanted: dict[str, Any]) -> dict[str, Any]:
    _prefix, venv = venvs.of(process)
    torch = venvs.version(venv, "torch")
    answer: dict[str, Any] = {
        "python": venv.python, "torch": None, "cuda": None, "arch_list": [], "devices": [],
        "available": False, "error": None,
    }  # fmt: skip
    process.sleep(4.0)
    if not torch:
        return {**answer, "error": "ModuleNotFoundError: No module named 'torch'"}
    suffix = f"+cu{venv.cuda.replace('.', '')}" if venv.cuda and "+" not in torch else ""
    answer |= {"torch": torch + suffix, "cuda": venv.cuda or None, "arch_list": list(venv.arch_list or _ALL_ARCHS)}
    seen = access(process.world, process.host, process.user)
    if seen.ok and not seen.cuda_problem:
        devices = [{"name": g.name, "capability": g.compute_capability} for g in seen.gpus]
        return {**answer, "available": True, "devices": devices}
    return {**answer, "error": cuda_words(seen.problem, seen.cuda_problem)}


def cuda_words(problem: str, cuda_problem: str) -> str:
    """torch's warning when CUDA cannot be used."""
    if cuda_problem:
        return (
            "CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up "
            "environment, e.g. changing env "
            "variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."
        )
    if problem in ("no-devices",):
        return "Can't initialize NVML"
    if problem == "mismatch":
        return "CUDA initialization: system has unsupported display driver / cuda driver combination"
    return (
        "CUDA initialization: Found no NVIDIA driver on your system. Please check that you have an NVIDIA "
        "GPU and installed a "
        "driver from http://www.nvidia.com/Download/index.aspx"
    )
