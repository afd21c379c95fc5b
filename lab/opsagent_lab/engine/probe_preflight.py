"""Probe `preflight`: flags judged by the environment's version without a launch."""

from __future__ import annotations

import json
from typing import Any

from opsagent_lab.engine import judging, venvs
from opsagent_lab.engine.cards import visible
from opsagent_lab.engine.probe_env import probe_venv
from opsagent_lab.program import Process

_KEPT = (
    "model_path", "tp_size", "pp_size", "dp_size", "ep_size", "base_gpu_id", "gpu_id_step", "nnodes", "context_length",
    "max_running_requests", "max_total_tokens", "mem_fraction_static", "page_size", "chunked_prefill_size", "kv_cache_dtype",
    "attention_backend", "quantization", "dtype", "disable_radix_cache", "disable_cuda_graph", "cuda_graph_max_bs",
    "speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
    "mamba_scheduler_strategy", "mamba_radix_cache_strategy", "mamba_full_memory_ratio", "mamba_ssm_dtype",
    "reasoning_parser", "tool_call_parser", "host", "port", "load_format",
)  # fmt: skip


def probe_preflight(process: Process, wanted: dict[str, Any]) -> dict[str, Any]:
    given = json.loads(process.stdin.read())
    process.env.update(given["env"])
    torch = probe_venv(process, {})
    process.sleep(9.0)
    prefix, venv = venvs.of(process)
    version = venvs.version(venv, "sglang")
    answer: dict[str, Any] = {
        "sglang": version or None, "torch": torch["torch"], "arch_list": torch["arch_list"], "available": torch["available"],
        "devices": [{"index": i, **card} for i, card in enumerate(torch["devices"])], "accepted": False, "kind": "",
        "words": "", "code": 0, "said": "", "resolved": {}, "free": {p: process.files.free(p) for p in wanted["disk"]},
        "error": None,
    }  # fmt: skip
    ninja = f"{prefix}/bin/ninja" if version else None
    nvcc = "/usr/local/cuda/bin/nvcc"
    answer["programs"] = {"ninja": ninja, "nvcc": nvcc if process.files.exists(nvcc) else None}
    if not version:
        return {**answer, "error": torch["error"] or "ModuleNotFoundError: No module named 'sglang'"}
    judged = judging.judge(version, given["flags"], process.env, process.files, visible(process)[1])
    answer.update(accepted=judged.accepted, kind=judged.kind, words=judged.words, code=judged.code)
    answer["said"] = "".join(f"[2026-01-01 00:00:00] {note}\n" for note in judged.notes)
    answer["resolved"] = {key: judged.resolved.get(key) for key in _KEPT} if judged.accepted else {}
    return answer
