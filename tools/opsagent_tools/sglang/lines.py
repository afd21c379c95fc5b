"""Where each term of the formula stands in SGLang's sources (below sglang/srt/), by version."""

from __future__ import annotations

_MIXIN = "model_executor/model_runner_kv_cache_mixin.py"
_CONFIGURATOR = "mem_cache/kv_cache_configurator.py"
_POOL = "model_executor/pool_configurator.py"

TERMS = ("mem_fraction_static", "usable", "spec_reserve", "mamba_state", "kv_cache", "max_running_requests")
LINES: dict[str, tuple[str, ...]] = {
    "0.5.9": (
        "server_args.py:1022", f"{_MIXIN}:143", f"{_MIXIN}:164", f"{_MIXIN}:194", f"{_MIXIN}:47", f"{_MIXIN}:345",
    ),
    "0.5.10": (
        "server_args.py:1283", f"{_MIXIN}:171", f"{_MIXIN}:192", f"{_MIXIN}:222", f"{_MIXIN}:75", f"{_MIXIN}:840",
    ),
    "0.5.11": (
        "server_args.py:1436", f"{_MIXIN}:64", f"{_MIXIN}:85", f"{_MIXIN}:115", f"{_POOL}:113", f"{_MIXIN}:698",
    ),
    "0.5.23": (
        "arg_groups/memory_hook.py:309", f"{_CONFIGURATOR}:3038", f"{_CONFIGURATOR}:3294", f"{_CONFIGURATOR}:3352",
        f"{_POOL}:340", f"{_CONFIGURATOR}:3119",
    ),
}  # fmt: skip
