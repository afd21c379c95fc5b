"""What a report says of a deployment beyond its limits: precision, parallelism, cards, name of the model."""

from __future__ import annotations

import re
from typing import Any

from opsagent_tools.arg_types import ModelRef, model_path, option
from opsagent_tools.host import Host, argv
from opsagent_tools.sglang.log import Facts


def precision(model: ModelRef, flags: list[str], log: bytes) -> str:
    """`bfloat16`, `fp8` …: what was asked for, else what the checkpoint is quantized to, else what the log says."""
    described: dict[str, Any] = model if isinstance(model, dict) else {}
    asked = option(flags, "--quantization") or option(flags, "--dtype")
    if asked and asked != "auto":
        return asked
    if described.get("quantization"):
        return str(described["quantization"])
    logged = re.search(rb"Load weight end\.[^\n]*dtype=torch\.(\w+)", log) or re.search(
        rb"KV cache dtype: torch\.(\w+)", log
    )
    return logged[1].decode() if logged else str(described.get("dtype") or "")


def model_id(model: ModelRef, known: Facts, info: dict[str, Any]) -> str:
    """The name under which the API serves it: the served name, else its path (SGLang 0.5.x)."""
    name = known.args.get("served_model_name") or info.get("served_model_name")
    return str(name or model_path(model))


def parallel(known: Facts, flags: list[str]) -> int:
    """Tensor parallel size."""
    said = str(known.args.get("tp_size") or option(flags, "--tp-size", "--tp", "--tensor-parallel-size"))
    return int(said) if said.isdigit() else 1


def card_names(host: Host, visible: str, count: int) -> list[str]:
    """Names of the cards that it runs on: the first `count`, or those of CUDA_VISIBLE_DEVICES."""
    done = argv(host, "nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader", timeout_s=60)
    rows = (re.fullmatch(r"\s*(\d+)\s*,\s*(?:NVIDIA )?(.+?)\s*", line) for line in done.stdout.splitlines())
    names = {row[1]: row[2] for row in rows if row} if done.ok else {}
    wanted = [number.strip() for number in visible.split(",") if number.strip()] or list(names)
    return [names[number] for number in wanted if number in names][:count]
