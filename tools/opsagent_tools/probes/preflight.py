# opsagent probe: preflight
"""What the target's own SGLang says of flags, before any weights are read (run by the serving environment's python).

Argument: {disk: [paths], pretend: null | {name, mib, capability: [major, minor], count}}.
Stdin: {flags: [words after `-m sglang.launch_server`], env: {NAME: VALUE}} (with secrets).
Answer: {sglang: "0.5.11"|null, torch: "2.11.0+cu130"|null, arch_list: ["sm_80", …], available: bool,
devices: [{index, name, capability: "8.6"}], accepted: bool, kind: str, words: str, code: int, said: str,
resolved: {NAME: VALUE}, free: {PATH: bytes}, programs: {"ninja": PATH|null, "nvcc": PATH|null}, error: str|null}.

`kind` and `words` are the exception and its message, or `SystemExit` and argparse's last line (code 2); '' when accepted.
`said` is the end of what SGLang printed meanwhile. `resolved` holds the arguments as ServerArgs left them, without secrets.
`error` says why nothing could be judged (no torch, no sglang): `accepted` is false then.

`pretend`: there is no card, and the flags are judged as if those were there. SGLang is not changed: packages that only a
serving machine has are stood in for, and torch.cuda answers for the cards once SGLang is imported (imported before, its
quantisation modules would want compiled kernels). Nothing is said then of kernels, backends against cards, or memory.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEPT = (
    "model_path", "tp_size", "pp_size", "dp_size", "ep_size", "base_gpu_id", "gpu_id_step", "nnodes", "context_length",
    "max_running_requests", "max_total_tokens", "mem_fraction_static", "page_size", "chunked_prefill_size", "kv_cache_dtype",
    "attention_backend", "quantization", "dtype", "disable_radix_cache", "disable_cuda_graph", "cuda_graph_max_bs",
    "speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
    "mamba_scheduler_strategy", "mamba_radix_cache_strategy", "mamba_full_memory_ratio", "mamba_ssm_dtype",
    "reasoning_parser", "tool_call_parser", "host", "port", "load_format",
)  # fmt: skip
SAID = 6000
EARLY = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that count only when a process starts with them."""
AGAIN = "OPSAGENT_PREFLIGHT_AGAIN"
ABSENT = ("torchvision", "gguf", "uvloop", "torch_memory_saver", "setproctitle", "soundfile")
"""Packages that SGLang imports and that judging flags does not need."""
KERNELS = ("sgl_kernel", "flashinfer", "deep_gemm", "flash_attn")
"""Compiled ones, asked for when there are cards: stood in for only then, since SGLang asks whether they are there."""
NAMES = ("NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "LANCZOS", "BOX", "HAMMING")
"""Members of enumerations that are read while modules are imported."""


class StandIn:
    """Finds a module for a package that is not there: any name in it is a class that nobody uses."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        if name.partition(".")[0] not in self.packages:
            return None
        loader: Any = self
        return importlib.machinery.ModuleSpec(name, loader, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)

        def member(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {**{key: key for key in NAMES}, "__class_getitem__": classmethod(lambda c, _i: c)})

        vars(module).update(__getattr__=member, __version__="0.0")
        return module

    def exec_module(self, _module: types.ModuleType) -> None:
        return


def stand_in(packages: tuple[str, ...]) -> None:
    """Behind everything that really finds modules, so that what is installed is used."""
    finder: Any = StandIn(packages)
    sys.meta_path.append(finder)


def pretend_cards(card: dict[str, Any]) -> None:
    """From now on torch and SGLang see these cards. To be called when SGLang's modules are imported."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    major, minor = card["capability"]
    total = int(card["mib"]) * 2**20
    shown = types.SimpleNamespace(
        name=card["name"], total_memory=total, major=major, minor=minor, multi_processor_count=100
    )
    answers: dict[str, Any] = {
        "is_available": True, "device_count": int(card["count"]), "current_device": 0, "get_device_name": card["name"],
        "get_device_capability": (major, minor), "get_device_properties": shown, "mem_get_info": (total, total),
    }  # fmt: skip
    for name, value in answers.items():
        setattr(torch.cuda, name, lambda *_a, _value=value, **_k: _value)
    torch.version.cuda = "13.0"
    fixed = {
        "get_nvgpu_memory_capacity": float(card["mib"]), "get_device_memory_capacity": float(card["mib"]),
        "is_flashinfer_available": True, "get_nvidia_driver_version": (580, 126, 9),
        "get_nvidia_driver_version_str": "580.126.09",
    }  # fmt: skip
    for module in [m for name, m in list(sys.modules.items()) if name.startswith("sglang") and m is not None]:
        for name, value in list(vars(module).items()):
            if name in fixed:
                setattr(module, name, lambda *_a, _value=fixed[name], **_k: _value)
            elif hasattr(type(value), "cache_clear"):
                value.cache_clear()  # what was found out before there were cards


@contextlib.contextmanager
def captured(path: str) -> Iterator[None]:
    """Everything that this process prints, C libraries included, goes into a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(target, 1)
    os.dup2(target, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)


def cards(answer: dict[str, Any]) -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]

    answer["torch"] = torch.__version__
    flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else ""
    answer["arch_list"] = [word for word in (flags or "").split() if word.startswith("sm_")]
    answer["available"] = bool(torch.cuda.is_available())
    for index in range(torch.cuda.device_count() if answer["available"] else 0):
        major, minor = torch.cuda.get_device_capability(index)
        name = torch.cuda.get_device_name(index)
        answer["devices"].append({"index": index, "name": name, "capability": f"{major}.{minor}"})


def judge(answer: dict[str, Any], flags: list[str], pretend: dict[str, Any] | None) -> None:
    import sglang  # type: ignore[import-not-found,unused-ignore]

    answer["sglang"] = sglang.__version__
    from sglang.srt.server_args import prepare_server_args  # type: ignore[import-not-found,unused-ignore]

    if pretend:
        importlib.import_module("sglang.srt.configs.model_config")
        stand_in(KERNELS)
        pretend_cards(pretend)
    answer["error"] = None
    try:
        args = prepare_server_args(flags)
        if hasattr(args, "resolve_once"):  # 0.5.23 completes the arguments in a step of its own
            args.resolve_once()
        args.check_server_args()
    except SystemExit as stop:
        answer.update(kind="SystemExit", code=stop.code if isinstance(stop.code, int) else 1)
    except Exception as refusal:  # whatever SGLang raises is the finding
        if pretend and isinstance(refusal, ImportError):
            raise  # of this environment, not of the flags
        answer.update(kind=type(refusal).__name__, words=str(refusal)[:2000], code=1)
        traceback.print_exc()
    else:
        answer["accepted"] = True
        done = args.resolved_dict() if hasattr(args, "resolved_dict") else {}
        for key in KEPT:
            value = done.get(key, getattr(args, key, None))
            answer["resolved"][key] = value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def free(paths: list[str]) -> dict[str, int]:
    found = {}
    for path in paths:
        at = Path(path)
        while not at.exists() and at != at.parent:
            at = at.parent
        with contextlib.suppress(OSError):
            found[path] = shutil.disk_usage(str(at)).free
    return found


def start_again(text: str, env: dict[str, str]) -> None:
    """Become the same script in the server's environment; stdin can be read once more."""
    handle, name = tempfile.mkstemp(prefix="opsagent-preflight-")
    os.unlink(name)  # noqa: PTH108
    os.write(handle, text.encode())
    os.lseek(handle, 0, os.SEEK_SET)
    os.dup2(handle, 0)
    os.execve(sys.executable, sys.orig_argv, {**os.environ, **env, AGAIN: "1"})


def main() -> None:
    text = sys.stdin.read()
    wanted, given = json.loads(sys.argv[1]), json.loads(text)
    if any(name in given["env"] for name in EARLY) and AGAIN not in os.environ and hasattr(sys, "orig_argv"):
        start_again(text, given["env"])
    os.environ.update(given["env"])
    sys.argv = ["launch_server.py", *given["flags"]]
    answer: dict[str, Any] = {
        "sglang": None, "torch": None, "arch_list": [], "available": False, "devices": [], "accepted": False, "kind": "",
        "words": "", "code": 0, "said": "", "resolved": {}, "free": free(wanted["disk"]),
        "programs": {name: shutil.which(name) for name in ("ninja", "nvcc")}, "error": "sglang is not there",
    }  # fmt: skip
    handle, name = tempfile.mkstemp(prefix="opsagent-preflight-")
    os.close(handle)
    try:
        with captured(name):
            try:
                if wanted.get("pretend"):
                    stand_in(ABSENT)
                    os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
                cards(answer)
                judge(answer, given["flags"], wanted.get("pretend"))
            except Exception as error:  # whatever a broken environment raises is the finding
                traceback.print_exc()
                answer["error"] = f"{type(error).__name__}: {error}"[:500]
        said = Path(name).read_text(errors="replace")
    finally:
        Path(name).unlink()
    answer["said"] = said[-SAID:]
    if answer["kind"] == "SystemExit" and not answer["words"]:
        lines = [line for line in said.splitlines() if line.strip()]
        answer["words"] = lines[-1][-2000:] if lines else ""
    print(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # SGLang's exit handlers may wait for children that were never started


main()
