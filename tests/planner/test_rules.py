"""Arguments that SGLang refuses after argparse: predicted with its words, its cause and what resolves them."""

from __future__ import annotations

import json

import pytest
from planner.records import DATA

from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.plan import Plan
from opsagent_tools.sglang.planner import plan

A6000, H200, B200 = (
    GpuFacts("RTX A6000", 49140, 8),
    GpuFacts("NVIDIA H200", 143771, 8),
    GpuFacts("NVIDIA B200", 183359, 8),
)


def of(model: str, flags: str, cards: GpuFacts = H200, version: str = "0.5.11") -> Plan:
    config = json.loads((DATA / "models" / model / "config.json").read_text())
    return plan(config, gpus=cards, flags=flags.split(), sglang=version, advise=False)


@pytest.mark.parametrize(
    ("model", "flags", "cause"),
    [
        ("qwen3.6-27b", "--speculative-algorithm NEXTN --tp 2", "spec-needs-extra-buffer"),
        ("qwen3.6-27b", "--mamba-scheduler-strategy extra_buffer --disable-radix-cache", "extra-buffer-unsupported"),
        ("falcon-h1-7b", "--mamba-scheduler-strategy extra_buffer", "extra-buffer-unsupported"),
        ("qwen3.6-27b", "--mamba-scheduler-strategy extra_buffer --page-size 48", "hybrid-cache-args-invalid"),
        ("nemotron-h-8b", "--attention-backend triton", "attn-backend-model-unsupported"),
        ("gptoss-bf16", "--attention-backend flashinfer", "attn-backend-model-unsupported"),
        ("qwen3-8b", "--context-length 500000", "context-length-exceeds-model"),
        ("qwen3-8b", "--tp 3", "tp-size-not-divisible"),
        ("q8-fp8", "--quantization awq", "quant-flag-mismatch"),
        ("q30-fp8", "--tp 8", "tp-quant-shard-not-divisible"),
        ("dsv3-7l", "--attention-backend trtllm_mla", "attn-backend-gpu-unsupported"),
        ("qwen3-8b", "--speculative-algorithm EAGLE --speculative-eagle-topk 2", "spec-args-incomplete"),
        ("qwen3-8b", "--speculative-algorithm EAGLE --speculative-num-steps 2", "spec-args-incomplete"),
        ("qwen3-8b", "--swa-full-tokens-ratio 1.5", "invalid-flag-value"),
        ("qwen3-8b", "--chunked-prefill-size 1000 --page-size 16", "invalid-flag-value"),
        ("qwen3-8b", "--pp-size 2 --speculative-algorithm EAGLE", "spec-args-incomplete"),
    ],
)
def test_refused(model: str, flags: str, cause: str) -> None:
    found = of(model, flags)
    assert (found.verdict, found.failure, found.cause) == ("fails", "arg-rejected", cause)
    assert found.words
    assert found.fix


def test_the_card_decides() -> None:
    assert of("qwen3-8b", "--attention-backend fa3", A6000).verdict == "fits"
    assert of("qwen3-8b", "--attention-backend fa3", B200).cause == "attn-backend-gpu-unsupported"
    assert of("q8-nvfp4", "", H200).cause == "quant-format-gpu-unsupported"
    assert of("q8-nvfp4", "", B200).verdict == "fits"


def test_the_version_decides() -> None:
    """0.5.9 switches the prefix cache off where 0.5.11 refuses; 0.5.23 picks extra_buffer by itself."""
    flags = "--speculative-algorithm NEXTN --tp 2"
    assert of("qwen3.6-27b", flags, version="0.5.9").verdict == "fits"
    assert of("qwen3.6-27b", flags, version="0.5.23").verdict == "fits"
    old = of("unknown-arch", "", version="0.5.9")
    assert (old.failure, old.cause) == ("unknown-architecture", "arch-unknown-to-transformers")


def test_environment_lifts_the_context_limit() -> None:
    config = json.loads((DATA / "models" / "qwen3-8b" / "config.json").read_text())
    env = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
    found = plan(config, gpus=H200, flags=["--context-length", "100000"], sglang="0.5.11", env=env, advise=False)
    assert found.verdict == "fits"


def test_model_that_a_version_does_not_have() -> None:
    """A class that came later: refused by the older version, with the one that has it."""
    config = json.loads((DATA / "models" / "gemma3-12b" / "config.json").read_text())
    config = {**config, "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4"}
    found = plan(config, gpus=H200, sglang="0.5.9", advise=False)
    assert found.failure == "unknown-architecture"
    assert "0.5.11" in found.fix
