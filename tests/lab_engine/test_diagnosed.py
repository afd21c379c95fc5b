"""The lab's broken launches against the diagnosis, which was made from other logs: each is named right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab_engine.support import Lab, lab

from opsagent_lab.network import Listener
from opsagent_tools.sglang.diagnosis import diagnose

SPEC = [
    *("--tp", "2", "--context-length", "32768", "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "2"),
]
DEEP = [
    "--tp",
    "2",
    "--speculative-algorithm",
    "NEXTN",
    "--speculative-num-steps",
    "3",
    "--speculative-eagle-topk",
    "1",
]
EXTRA = ["--mamba-scheduler-strategy", "extra_buffer"]
NEXTN = ["--tp", "2", *EXTRA, "--speculative-algorithm", "NEXTN"]


def _story() -> Lab:
    return lab()


def _small() -> Lab:
    return lab("Qwen/Qwen3-8B", cards=1)


def _neighbour() -> Lab:
    it = _small()
    it.world.add_process(it.host, ["python", "train.py"], gpu_mib={"GPU-0": 40_000})
    return it


def _busy() -> Lab:
    it = _small()
    other = it.world.add_process(it.host, ["nc", "-l", "30000"])
    it.world.listen(Listener("gpu", "127.0.0.1", 30000, other.pid))
    return it


def _other_torch() -> Lab:
    it = _small()
    it.host.venvs["/opt/sglang"].arch_list = ["sm_120"]
    return it


def _other_kernels() -> Lab:
    it = _small()
    it.host.venvs["/opt/sglang"].notes["kernel_archs"] = "sm_120"
    return it


BROKEN: list[tuple[str, Callable[[], Lab], list[str]]] = [
    ("spec-needs-extra-buffer", _story, SPEC),
    ("spec-args-incomplete", _story, [*NEXTN, "--speculative-num-steps", "1"]),
    ("spec-args-incomplete", _story, [*NEXTN, "--speculative-eagle-topk", "1"]),
    ("hybrid-cache-args-invalid", _story, ["--tp", "2", *EXTRA, "--page-size", "48"]),
    ("hybrid-spec-state-reserve", _story, [*DEEP, *EXTRA, "--speculative-num-draft-tokens", "4"]),
    ("hybrid-spec-state-reserve", _story, [*SPEC, *EXTRA, "--mem-fraction-static", "0.70"]),
    ("context-length-exceeds-model", _story, ["--tp", "2", "--context-length", "500000"]),
    ("unknown-flag", _small, ["--max-model-len", "32768"]),
    ("invalid-flag-value", _small, ["--tool-call-parser", "qwen3_codr"]),
    ("oom-weight-load", lambda: lab(cards=1), []),
    ("kv-pool-no-room", _small, ["--mem-fraction-static", "0.3"]),
    ("oom-pool-alloc", _small, ["--mem-fraction-static", "0.999", "--disable-cuda-graph"]),
    ("oom-graph-capture", _small, ["--mem-fraction-static", "0.97", "--max-running-requests", "64"]),
    ("gpu-memory-occupied", _neighbour, []),
    ("port-in-use", _busy, []),
    ("torch-build-predates-gpu", _other_torch, []),
    ("kernel-arch-missing", _other_kernels, []),
    ("quant-format-gpu-unsupported", lambda: lab("Qwen/Qwen3.6-27B-FP8"), ["--tp", "2"]),
    ("checkpoint-shard-corrupt", lambda: lab("Qwen/Qwen3-8B", truncated=("model-00003-of-00005.safetensors",)), []),
    ("worker-sigkilled", lambda: lab("Qwen/Qwen3-8B", settings={"engine": {"oom_kill": 1}}), []),
    ("gpu-index-out-of-range", _small, ["--tp", "2"]),
    ("tp-size-not-divisible", lambda: lab("Qwen/Qwen3-8B", cards=3), ["--tp", "3"]),
    ("cuda-toolkit-not-found", lambda: lab("Qwen/Qwen3-8B", settings={"engine": {"needs_nvcc": True}}), []),
]


@pytest.mark.parametrize(("cause", "place", "flags"), BROKEN, ids=[f"{n}-{b[0]}" for n, b in enumerate(BROKEN)])
def test_a_broken_launch_is_named(cause: str, place: Callable[[], Lab], flags: list[str]) -> None:
    it = place()
    text = it.until("NEVER", it.start(*flags))
    found = diagnose(text.splitlines())
    assert (found.verdict, found.cause) == ("failed", cause)
    assert it.world.bugs == []


@pytest.mark.parametrize(("place", "flags"), [(_small, []), (_story, [*SPEC, *EXTRA, "--max-running-requests", "4"])])
def test_a_good_launch_is_healthy_whatever_it_prints(place: Callable[[], Lab], flags: list[str]) -> None:
    it = place()
    found = diagnose(it.until("ready to roll", it.start(*flags)).splitlines())
    assert (found.verdict, found.cause) == ("healthy", "none")
