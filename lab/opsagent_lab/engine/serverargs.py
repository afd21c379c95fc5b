"""The `server_args=ServerArgs(...)` line: every argument in SGLang's order, the API key included, as the real one
prints it.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files
from typing import Any

from opsagent_lab.engine import defaults
from opsagent_lab.engine.launch import Launch


@cache
def template() -> tuple[tuple[str, Any], ...]:
    """Names and values of a recorded line (0.5.11), in order."""
    text = (files("opsagent_lab.engine") / "data" / "server_args.txt").read_text(encoding="utf-8")
    call = ast.parse(text.strip(), mode="eval").body
    assert isinstance(call, ast.Call)
    return tuple((k.arg or "", ast.literal_eval(k.value)) for k in call.keywords)


def server_args(launch: Launch) -> dict[str, Any]:
    """All arguments of a launch by name: what was typed, what was resolved, and defaults."""
    s = launch.settings
    values = dict(template())
    values.update({k: v for k, v in s.typed.items() if k in values and v is not None})
    values.update(
        model_path=s.model_path, tokenizer_path=s.typed.get("tokenizer_path") or s.model_path,
        served_model_name=s.served_name,
        load_format=s.load_format, context_length=s.context_length, host=s.host, port=s.port, random_seed=s.seed,
        mem_fraction_static=s.mem_fraction, max_running_requests=s.max_running, chunked_prefill_size=s.chunked,
        max_total_tokens=s.max_total_tokens, page_size=s.page_size, tp_size=s.tp, attention_backend=s.attention_backend,
        sampling_backend=s.sampling_backend, speculative_algorithm=s.spec, 
        mamba_scheduler_strategy="no_buffer" if s.strategy == "auto" else s.strategy,
        speculative_num_steps=s.spec_steps if s.spec else None, speculative_eagle_topk=s.spec_topk if s.spec else None,
        speculative_num_draft_tokens=s.spec_tokens if s.spec else None, disable_radix_cache=not s.radix,
        disable_overlap_schedule=not s.overlap, disable_cuda_graph=not s.graphs, cuda_graph_max_bs=s.graph_max_bs,
        cuda_graph_bs=defaults.graph_sizes(s.graph_max_bs, spec=s.spec is not None), max_mamba_cache_size=s.max_mamba,
        disable_piecewise_cuda_graph=not s.piecewise, piecewise_cuda_graph_max_tokens=s.chunked,
        piecewise_cuda_graph_tokens=defaults.piecewise_sizes(s.chunked), mamba_full_memory_ratio=s.mamba_ratio,
        enable_flashinfer_allreduce_fusion=s.allreduce_fusion, kv_cache_dtype=s.kv_dtype, api_key=s.api_key,
        reasoning_parser=s.reasoning_parser, tool_call_parser=s.tool_parser, enable_metrics=s.metrics,
        grammar_backend=s.typed.get("grammar_backend") or "xgrammar",
        disable_custom_all_reduce=bool(s.typed.get("disable_custom_all_reduce")),
        quantization=s.typed.get("quantization") or launch.shape.quant,
    )  # fmt: skip
    return values


def server_args_line(launch: Launch) -> str:
    inner = ", ".join(f"{name}={value!r}" for name, value in server_args(launch).items())
    return f"server_args=ServerArgs({inner})"
