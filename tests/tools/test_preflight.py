"""preflight against a simulated machine: a refusal is a result, and what else stands in the way is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_target import USUAL, Target, target

from opsagent_tools.errors import ToolFailed
from opsagent_tools.preflight import PreflightArgs, PreflightResult, run

SPEC = "--speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2"


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("lab")) as one:
        yield one


def ask(at: Target, flags: str, **more: Any) -> PreflightResult:
    fields = {"model": "/srv/models/m", "python": "/opt/sglang/bin/python", "flags": flags, **more}
    return run(at.host, PreflightArgs(**fields), at.ctx())


def test_accepted(usual: Target) -> None:
    seen = ask(usual, f"--tp 2 {SPEC} --mamba-scheduler-strategy extra_buffer")
    assert seen.accepted
    assert seen.port_free
    assert seen.gpus_free
    assert seen.kernels_fit
    assert not seen.failed
    assert (seen.cause, seen.sglang, seen.gpus_needed, seen.gpus_visible) == (None, "0.5.11", 2, 2)
    assert seen.resolved["tp_size"] == 2


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        (f"--tp 2 {SPEC}", "spec-needs-extra-buffer"),
        ("--tp 2 --no-such-flag", "unknown-flag"),
        ("--tp 2 --reasoning-parser qwen-3", "invalid-flag-value"),
        ("--tp 2 --context-length 9999999", "context-length-exceeds-model"),
    ],
)
def test_a_refusal_is_a_result(usual: Target, flags: str, cause: str) -> None:
    seen = ask(usual, flags)
    assert (seen.accepted, seen.cause, seen.failed) == (False, cause, False)
    assert seen.words
    assert seen.port_free


def test_more_cards_than_there_are(usual: Target) -> None:
    seen = ask(usual, "--tp 4")
    assert (seen.accepted, seen.cause, seen.gpus_needed) == (False, "gpu-index-out-of-range", 4)


def test_chosen_cards(usual: Target) -> None:
    seen = ask(usual, "--tp 1", env={"CUDA_VISIBLE_DEVICES": "1"})
    assert seen.accepted
    assert seen.gpus_free


def test_secrets_stay_out(usual: Target) -> None:
    told: list[str] = []
    args = PreflightArgs(
        model="/srv/models/m", python="/opt/sglang/bin/python", flags=["--tp", "2", "--api-key", "s3cret"]
    )
    seen = run(usual.host, args, usual.ctx(secrets=told.append))
    assert told == ["s3cret"]
    assert "s3cret" not in seen.model_dump_json()


def test_without_sglang(usual: Target) -> None:
    with pytest.raises(ToolFailed, match="cannot judge flags"):
        ask(usual, "--tp 2", python="python3")


def test_port_and_neighbour(tmp_path: Path) -> None:
    more = USUAL + (
        '[[hosts.gpu1.processes]]\nargv = ["train"]\ntitle = "train"\ngpu_mib = { 0 = 9000 }\nports = [30000]\n'
    )
    with target(tmp_path, more) as at:
        seen = ask(at, "--tp 2")
        assert seen.accepted
        assert not seen.port_free
        assert not seen.gpus_free
        assert seen.cause == "port-in-use"
        assert "train" in seen.port_owner
        assert "train" in seen.gpus_busy[0]
        assert ask(at, "--tp 1", env={"CUDA_VISIBLE_DEVICES": "1"}, port=30001).cause is None


def test_kernels_for_other_cards(tmp_path: Path) -> None:
    more = USUAL.replace('{ sglang = "0.5.11" }', '{ sglang = "0.5.11", archs = ["sm_120"] }')
    with target(tmp_path, more) as at:
        seen = ask(at, "--tp 2")
        assert (seen.accepted, seen.kernels_fit, seen.cause) == (False, False, "torch-build-predates-gpu")
