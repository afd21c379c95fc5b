"""The engine's own arithmetic against what real servers logged."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lab_engine.support import config_of, real, records, replay

from opsagent_lab.engine import checkpoint, hardware
from opsagent_lab.engine.card import GIB, MIB
from opsagent_lab.engine.shape import read_shape

RECORDS = records()
SERVED = [r["id"] for r in RECORDS.values() if r["scored"] and r["outcome"] != "fails" and r["free_gib_at_load"]]


EDGE = {("t-moe30b", "pool_end"): 0.21}
"""Its K buffers end just below a multiple of 2 MiB: a few tokens more cost 96 segments."""


def _numbers(lines: list[str]) -> dict[str, float]:
    """The memory lines of the first rank, target and draft apart."""
    text = "\n".join(line for line in lines if " TP1]" not in line)
    ends = re.findall(r"Load weight end.*?mem usage=([\d.]+) GB", text)
    pools = re.findall(r"Memory pool end. avail mem=([\d.]+) GB", text)
    mamba = re.search(r"max_mamba_cache_size: (\d+), conv_state size: ([\d.]+)GB, ssm_state size: ([\d.]+)GB", text)
    kv = re.search(r"#tokens: (\d+), K size: ([\d.]+) GB", text)
    out: dict[str, float] = {}
    if ends:
        out["weights"], out["pool_end"] = float(ends[0]), float(pools[0])
    if len(ends) > 1:
        out["draft_weights"], out["draft_pool_end"] = float(ends[1]), float(pools[1])
    if mamba:
        out |= {"slots": float(mamba[1]), "conv": float(mamba[2]), "ssm": float(mamba[3])}
    if kv:
        out |= {"tokens": float(kv[1]), "k": float(kv[2])}
    graph = re.search(r"Capture cuda graph end.*?mem usage=([\d.]+) GB", text)
    if graph:
        out["graph"] = float(graph[1])
    return out


@pytest.mark.parametrize("name", SERVED)
def test_tokens_requests_and_slots(name: str) -> None:
    logged: dict[str, Any] = RECORDS[name]["logged"]
    limits = replay(RECORDS[name]).limits
    assert limits is not None
    assert limits.tokens == pytest.approx(logged["max_total_num_tokens"], rel=0.012)
    if logged.get("max_running_requests") is not None:
        assert limits.requests == logged["max_running_requests"]
    if logged.get("mamba_slots") is not None:
        assert abs((limits.slots or 0) - logged["mamba_slots"]) <= 1


@pytest.mark.parametrize(
    "name", ["tp2-seed2-mrr4", "tp2-mrr8-msf82", "tp2-nomtp", "tp1-mtp-extra", "tp1-plain", "t-moe30b", "dense8b-cg"]
)
def test_every_memory_line(name: str) -> None:
    ours, theirs = _numbers(replay(RECORDS[name]).lines), _numbers(real(name))
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        tolerance = value * 0.005 if key == "tokens" else 1.0 if key == "slots" else EDGE.get((name, key), 0.06)
        assert ours[key] == pytest.approx(value, abs=tolerance), key


def test_the_launch_that_failed_fails_here_too() -> None:
    out = replay(RECORDS["tp2-seed1-fixed"])
    assert out.died is not None
    assert (out.died.code, out.died.cause) == (137, "hybrid-spec-state-reserve")


def _story(*more: str) -> dict[str, Any]:
    spec = ("NEXTN", "1", "1", "2")
    names = ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens")
    flags = ["--tp", "2", "--context-length", "32768"]
    for name, value in zip(names, spec, strict=True):
        flags += [f"--speculative-{name}", value]
    return {
        "id": "story", "model_dir": "models/qwen3.6-27b", "gpu_name": "NVIDIA RTX A6000", "gpu_total_mib": 49140, "tp": 2,
        "free_gib_at_load": 46.80, "flags": [*flags, *more],
    }  # fmt: skip


def test_the_story_ends_with_one_request_and_few_tokens() -> None:
    limits = replay(_story("--mamba-scheduler-strategy", "extra_buffer")).limits
    assert limits is not None
    assert limits.requests == 1
    assert 18_200 <= limits.tokens <= 19_200


def test_four_running_requests_give_six_times_the_tokens() -> None:
    limits = replay(_story("--mamba-scheduler-strategy", "extra_buffer", "--max-running-requests", "4")).limits
    assert limits is not None
    assert limits.requests == 4
    assert limits.tokens == pytest.approx(126_723, rel=0.005)


def test_the_wish_of_the_story_is_refused_before_anything_is_loaded() -> None:
    out = replay(_story())
    assert out.refusal is not None
    assert out.refusal.kind == "ValueError"
    assert "Load weight begin" not in "\n".join(out.lines)


@pytest.mark.parametrize(("version", "requests"), [("0.5.9", 4), ("0.5.10", 1), ("0.5.23", 7)])
def test_other_versions_divide_differently(version: str, requests: int) -> None:
    flags = [] if version == "0.5.23" else ["--mamba-scheduler-strategy", "extra_buffer"]
    limits = replay(_story(*flags), version).limits
    assert limits is not None
    assert limits.requests == requests


def test_the_checkpoint_of_the_story_has_the_real_sizes() -> None:
    files = checkpoint.shards(read_shape(config_of("models/qwen3.6-27b")), 15)
    index = checkpoint.index(files)
    assert len(index["weight_map"]) == 1199
    assert index["metadata"]["total_size"] == 55_562_855_904


def test_an_a6000_has_46_80_gib_before_loading() -> None:
    free = 49140 * MIB - 467 * MIB - 2 * MIB
    left = free - hardware.context_bytes(86, 2) - hardware.distributed_bytes(86, 2)
    assert left / GIB == pytest.approx(46.80, abs=0.006)
