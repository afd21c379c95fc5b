"""What a server tells about itself: models, arguments and limits, loads, metrics."""

from __future__ import annotations

from typing import Any

from opsagent_lab.clock import stamp
from opsagent_lab.engine.card import GIB
from opsagent_lab.engine.serverargs import server_args
from opsagent_lab.engine.serving import Server


def models(server: Server, now: float) -> dict[str, Any]:
    name = server.launch.settings.served_name
    card = {
        "id": name, "object": "model", "created": int(now), "owned_by": "sglang", "root": name, "parent": None,
        "max_model_len": server.limits.context,
    }  # fmt: skip
    return {"object": "list", "data": [card]}


def model_info(server: Server) -> dict[str, Any]:
    shape, path = server.launch.shape, server.launch.settings.model_path
    return {
        "model_path": path, "tokenizer_path": path, "is_generation": True, "preferred_sampling_params": None,
        "weight_version": "default", "has_image_understanding": shape.vision is not None, "has_audio_understanding": False,
        "model_type": shape.model_type, "architectures": [shape.architecture],
    }  # fmt: skip


def server_info(server: Server) -> dict[str, Any]:
    """The whole ServerArgs, the API key included, then the scheduler's limits and states."""
    limits = server.limits
    state: dict[str, Any] = {
        "last_gen_throughput": round(server.last_rate, 2),
        "memory_usage": {
            "weight": round(limits.weights / GIB, 2), "kvcache": round(limits.kv / GIB, 2), "token_capacity": limits.tokens,
            "graph": round(limits.graph / GIB, 2),
        },
        "effective_max_running_requests_per_dp": limits.requests,
    }  # fmt: skip
    if server.launch.settings.spec:
        state["avg_spec_accept_length"] = server.accept_length
    return {
        **server_args(server.launch),
        "status": "ready",
        "max_total_num_tokens": limits.tokens,
        "max_req_input_len": limits.max_prompt_tokens,
        "internal_states": [{**server_args(server.launch), **state}],
        "version": server.launch.settings.version,
    }


def loads(server: Server, now: float) -> dict[str, Any]:
    """/v1/loads (entrypoints/v1_loads.py): one rank, and the sums over all ranks."""
    limits, s = server.limits, server.launch.settings
    usage = round(server.used_tokens / max(1, limits.tokens), 4)
    rate, share = round(server.last_rate, 2), round(server.running / max(1, limits.requests), 4)
    waiting = len(server.queue)
    core: dict[str, Any] = {
        "dp_rank": 0, "timestamp": now, "num_running_reqs": server.running, "num_waiting_reqs": waiting,
        "num_used_tokens": server.used_tokens, "num_total_tokens": server.used_tokens, "max_total_num_tokens": limits.tokens,
        "token_usage": usage, "gen_throughput": rate, "cache_hit_rate": 0.0, "utilization": share,
        "max_running_requests": limits.requests,
        "memory": {
            "weight_gb": round(limits.weights / GIB, 2), "kv_cache_gb": round(limits.kv / GIB, 2),
            "graph_gb": round(limits.graph / GIB, 2), "token_capacity": limits.tokens,
        },
        "num_total_reqs": server.running + waiting,
    }  # fmt: skip
    if s.spec:
        share_accepted = (server.accept_length - 1) / max(1, s.spec_tokens - 1)
        core["speculative"] = {"accept_length": server.accept_length, "accept_rate": round(share_accepted, 4)}
    total = {
        "total_running_reqs": server.running, "total_waiting_reqs": waiting, "total_reqs": server.running + waiting,
        "total_used_tokens": server.used_tokens, "total_tokens": server.used_tokens, "avg_token_usage": usage,
        "avg_throughput": rate, "avg_utilization": share,
    }  # fmt: skip
    moment = stamp(now, "%Y-%m-%dT%H:%M:%S+00:00")
    return {"timestamp": moment, "version": s.version, "dp_rank_count": 1, "loads": [core], "aggregate": total}


def load(server: Server, now: float) -> list[dict[str, Any]]:
    """/get_load, the older form."""
    waiting, tokens = len(server.queue), server.used_tokens
    one = {"dp_rank": 0, "num_reqs": server.running + waiting, "num_waiting_reqs": waiting, "num_tokens": tokens}
    return [{**one, "num_pending_tokens": 0, "ts_tic": now}]


def metrics(server: Server) -> str:
    """Prometheus text of the gauges and counters that people look at."""
    limits, s = server.limits, server.launch.settings
    values: dict[str, tuple[str, float]] = {
        "num_running_reqs": ("gauge", server.running),
        "num_queue_reqs": ("gauge", len(server.queue)),
        "num_used_tokens": ("gauge", server.used_tokens),
        "token_usage": ("gauge", server.used_tokens / max(1, limits.tokens)),
        "gen_throughput": ("gauge", server.last_rate),
        "cache_hit_rate": ("gauge", 0.0),
        "max_total_num_tokens": ("gauge", limits.tokens),
        "context_len": ("gauge", limits.context),
        "prompt_tokens_total": ("counter", server.prompts),
        "generation_tokens_total": ("counter", server.generated),
        "num_requests_total": ("counter", server.served),
    }
    if limits.slots is not None:
        values["mamba_usage"] = ("gauge", min(1.0, server.running * 3 / max(1, limits.slots)))
    if s.spec:
        values["spec_accept_length"] = ("gauge", server.accept_length)
        values["spec_accept_rate"] = ("gauge", (server.accept_length - 1) / max(1, s.spec_tokens - 1))
    label = f'{{engine_type="unified",model_name="{s.served_name}",pp_rank="0",tp_rank="0"}}'
    lines = []
    for name, (kind, value) in values.items():
        lines.append(f"# HELP sglang:{name} {name.replace('_', ' ')}")
        lines.append(f"# TYPE sglang:{name} {kind}")
        lines.append(f"sglang:{name}{label} {float(value)}")
    return "\n".join(lines) + "\n"
