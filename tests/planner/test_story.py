"""Qwen3.6-27B with NEXTN on two RTX A6000 logged 1 request and 19,198 tokens: what we say of it, and find instead."""

from __future__ import annotations

import json

import pytest
from planner.records import DATA

from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.plan import Plan, Wish
from opsagent_tools.sglang.planner import plan

CONFIG = json.loads((DATA / "models" / "qwen3.6-27b" / "config.json").read_text())
CARDS = GpuFacts("RTX A6000", 49140, 2)
NEXTN = [
    "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1", "--speculative-eagle-topk", "1",
    "--speculative-num-draft-tokens", "2",
]  # fmt: skip
LAUNCHED = ["--tp", "2", "--context-length", "32768", *NEXTN, "--mamba-scheduler-strategy", "extra_buffer"]


def of(flags: list[str], **more: object) -> Plan:
    return plan(CONFIG, gpus=CARDS, flags=flags, sglang="0.5.11", **more)  # type: ignore[arg-type]


def test_free_memory_unknown() -> None:
    found = of(LAUNCHED)
    assert found.limits is not None
    assert found.limits.max_running_requests == 1
    assert found.intervals.max_running_requests == (1, 1)
    low, high = found.intervals.max_total_num_tokens or (0, 0)
    assert low <= 19198 <= high
    assert "48" in found.binding_constraint
    assert found.advice[0].limits.max_running_requests >= 4
    assert found.advice[0].limits.max_total_num_tokens >= 100_000
    assert found.advice[0].change == {"--max-running-requests": "4"}
    assert found.advice[0].cost.quality is None


def test_wish_without_strategy() -> None:
    """The asked flags are refused, and the proposal is complete, accepted and meets the wish."""
    found = of(NEXTN, free_gib=46.8, want=Wish(context=32768, concurrency=4), keep=["speculation", "precision"])
    assert (found.verdict, found.failure, found.cause) == ("fails", "arg-rejected", "spec-needs-extra-buffer")
    assert "extra_buffer" in found.words
    proposal = found.proposal
    assert proposal is not None
    line = " ".join(proposal.flags)
    for flag in (
        "--mamba-scheduler-strategy extra_buffer",
        "--max-running-requests 4",
        "--tp 2",
        "--context-length 32768",
    ):
        assert flag in line
    assert proposal.limits.max_running_requests >= 4
    assert proposal.limits.max_total_num_tokens > 100_000
    assert proposal.meets_wish
    again = of(proposal.flags, free_gib=46.8)
    assert again.verdict == "fits"
    assert again.limits == proposal.limits


@pytest.mark.parametrize("keep", [["speculation"], ["precision"], ["speculation", "precision", "prefix-cache"]])
def test_what_is_kept_does_not_change(keep: list[str]) -> None:
    found = of(LAUNCHED, want=Wish(context=32768, concurrency=16), keep=keep)
    for option in found.advice:
        if "speculation" in keep:
            assert "--speculative-algorithm" not in option.change
        if "precision" in keep:
            assert option.cost.quality is None
        if "prefix-cache" in keep:
            assert "--disable-radix-cache" not in option.change


def test_advice_is_not_dominated_and_cheapest_first() -> None:
    found = of(LAUNCHED, free_gib=46.8)
    for at, option in enumerate(found.advice):
        for other in found.advice[:at]:
            assert (
                option.limits.max_total_num_tokens > other.limits.max_total_num_tokens
                or option.limits.max_running_requests > other.limits.max_running_requests
            )
    assert any("--speculative-algorithm" in option.change for option in found.advice)


def test_impossible_wish_has_no_proposal() -> None:
    found = of(LAUNCHED, want=Wish(context=262144, concurrency=64), keep=["speculation", "precision"])
    assert found.proposal is None
    beyond = of(LAUNCHED, want=Wish(context=10_000_000))
    assert beyond.proposal is None


def test_renamed_flag_in_the_newest_version() -> None:
    """0.5.23 picks extra_buffer by itself; its flag has another name."""
    found = plan(
        CONFIG, gpus=CARDS, flags=NEXTN, sglang="0.5.23", free_gib=46.8, want=Wish(context=32768, concurrency=4)
    )
    assert found.proposal is not None
    assert "--mamba-scheduler-strategy" not in found.proposal.flags
    assert found.proposal.limits.max_running_requests >= 4


def test_balance_of_the_two_pools() -> None:
    """(slots + draft tokens) * state / price / tokens, from sizes alone."""
    found = of(LAUNCHED, free_gib=46.8)
    assert found.balance is not None
    assert found.balance.balanced_ratio == pytest.approx((5 + 2) * 76_972_032 / 32_768 / 32_768, abs=0.001)


@pytest.mark.parametrize(
    ("added", "tokens", "running"),
    [
        (["--max-running-requests", "1"], 136_648, 1),
        (["--max-running-requests", "4"], 129_601, 4),
        (["--max-running-requests", "8"], 117_856, 8),
        (["--max-running-requests", "4", "--mem-fraction-static", "0.82"], 212_814, 4),
        (["--max-running-requests", "4", "--mamba-full-memory-ratio", "0.3"], 188_326, 4),
        (["--max-running-requests", "4", "--max-mamba-cache-size", "20"], 195_373, 4),
        (["--mamba-full-memory-ratio", "4"], 7_453, 2),
        (["--mamba-ssm-dtype", "bfloat16"], 78_004, 11),
        (["--max-running-requests", "4", "--kv-cache-dtype", "fp8_e4m3"], 259_202, 4),
    ],
)
def test_what_flags_move(added: list[str], tokens: int, running: int) -> None:
    """The same arithmetic done by hand for 46.787 GiB free and weights of 25.56 GiB; ours are 25.64, as logged."""
    found = of([*LAUNCHED, *added], free_gib=46.787, advise=False)
    assert found.limits is not None
    assert found.limits.max_running_requests == running
    assert found.limits.max_total_num_tokens == pytest.approx(tokens, abs=7000)


@pytest.mark.parametrize("added", [["--max-mamba-cache-size", "20"], ["--speculative-num-steps", "3"]])
def test_refused_for_lack_of_a_pool(added: list[str]) -> None:
    found = of([*LAUNCHED, *added], free_gib=46.787, advise=False)
    assert (found.failure, found.cause) == ("kv-pool-negative", "hybrid-spec-state-reserve")
    assert "--max-running-requests" in found.fix
