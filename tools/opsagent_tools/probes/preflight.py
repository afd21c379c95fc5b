# opsagent probe: preflight
"""What the target's own SGLang says of flags, before any weights are read (run by the serving environment's python).

Argument: {disk: [paths]}. Stdin: {flags: [words after `-m sglang.launch_server`], env: {NAME: VALUE}} (with secrets).
Answer: {sglang: "0.5.11"|null, torch: "2.11.0+cu130"|null, arch_list: ["sm_80", …], available: bool,
devices: [{index, name, capability: "8.6"}], accepted: bool, kind: str, words: str, code: int, said: str,
resolved: {NAME: VALUE}, free: {PATH: bytes}, programs: {"ninja": PATH|null, "nvcc": PATH|null}, error: str|null}.

`kind` and `words` are the exception and its message, or `SystemExit` and argparse's last line (code 2); '' when accepted.
`said` is the end of what SGLang printed meanwhile. `resolved` holds the arguments as ServerArgs left them, without secrets.
`error` says why nothing could be judged (no torch, no sglang): `accepted` is false then.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import traceback
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


def judge(answer: dict[str, Any], flags: list[str]) -> None:
    import sglang  # type: ignore[import-not-found,unused-ignore]

    answer["sglang"] = sglang.__version__
    from sglang.srt.server_args import prepare_server_args  # type: ignore[import-not-found,unused-ignore]

    answer["error"] = None
    try:
        args = prepare_server_args(flags)
        args.check_server_args()
    except SystemExit as stop:
        answer.update(kind="SystemExit", code=stop.code if isinstance(stop.code, int) else 1)
    except Exception as refusal:  # whatever SGLang raises is the finding
        answer.update(kind=type(refusal).__name__, words=str(refusal)[:2000], code=1)
        traceback.print_exc()
    else:
        answer["accepted"] = True
        for key in KEPT:
            value = getattr(args, key, None)
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
                cards(answer)
                judge(answer, given["flags"])
            except Exception as error:  # whatever a broken environment raises is the finding
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
