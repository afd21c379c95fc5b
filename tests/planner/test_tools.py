"""The tools `read_config` and `estimate_vram` on a host: what they ask it, and what they answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeHost, Out
from planner.records import DATA

from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.estimate_vram import EstimateVramArgs
from opsagent_tools.estimate_vram import run as estimate
from opsagent_tools.host import Argv
from opsagent_tools.probes.model_files import describe
from opsagent_tools.read_config import ReadConfigArgs
from opsagent_tools.read_config import run as read_config
from opsagent_tools.tool import Context

MODEL = DATA / "models" / "qwen3.6-27b"
NEXTN = "--speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2"


def host(*, cards: int = 2, total: str = "49140", free: str = "48684", sglang: str | None = "0.5.11") -> FakeHost:
    """A machine with A6000s, this repository's model folders, and one environment."""
    box = FakeHost()

    def python(_host: FakeHost, argv: Argv, _stdin: str) -> Out:
        name, wanted = argv[2].splitlines()[0].rpartition(" ")[2], json.loads(argv[3])
        if name == "model_files":
            return 0, json.dumps(describe(wanted["path"])) + "\n", ""
        assert name == "venvs"
        return 0, json.dumps({"venvs": [{"path": wanted["roots"][0], "sglang": sglang}]}) + "\n", ""

    def nvidia_smi(_host: FakeHost, argv: Argv, _stdin: str) -> Out:
        if not any(word.startswith("--query-gpu") for word in argv):
            return 0, "", ""
        row = "{0}, GPU-{0}, NVIDIA RTX A6000, 00000000:4{0}:00.0, " + f"{total}, 4, {free}, 8.6, Disabled, 580.126\n"
        return (
            (0, "".join(row.format(card) for card in range(cards)), "") if cards else (9, "", "No devices were found\n")
        )

    box.programs |= {"python3": python, "nvidia-smi": nvidia_smi}
    return box


def test_read_config() -> None:
    found = read_config(host(), ReadConfigArgs(path=str(MODEL)))
    assert found.architecture == "Qwen3_5ForConditionalGeneration"
    assert found.layers == {"linear": 48, "full": 16, "dense": 64}
    assert found.vision
    assert found.mtp_layers == 1
    assert found.least_sglang == "0.5.9"
    assert not found.complete
    assert "no weight files" in found.summary


def test_read_config_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="no directory"):
        read_config(host(), ReadConfigArgs(path="/nowhere"))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        read_config(host(), ReadConfigArgs(path=str(tmp_path)))


def test_estimate_of_the_wish() -> None:
    """The default wish of the launch runbook: refused as asked, and a proposal that is accepted."""
    box = host()
    model = read_config(box, ReadConfigArgs(path=str(MODEL))).model_dump()
    args = EstimateVramArgs.model_validate(
        {"model": model, "flags": NEXTN, "keep": ["speculation", "precision"], "want_context": 32768, "want_concurrency": 4,
         "python": "/opt/sglang-0.5.11/bin/python"}
    )  # fmt: skip
    found = estimate(box, args)
    assert found.sglang == "0.5.11"
    assert found.cause == "spec-needs-extra-buffer"
    assert not found.failed
    proposal = found.proposal
    assert proposal is not None
    assert proposal.per_gpu_gib is not None
    assert proposal.per_gpu_gib.free == pytest.approx(46.8, abs=0.1)
    assert proposal.limits.max_running_requests == 4
    assert proposal.limits.max_total_num_tokens > 100_000
    for flag in ("--mamba-scheduler-strategy", "--max-running-requests", "--tp", "--context-length"):
        assert flag in proposal.flags
    assert found.model_dump_json()


def test_other_processes_on_the_card_are_seen() -> None:
    """30 GiB are held by somebody else: the model does not fit, and no flag changes that."""
    args = EstimateVramArgs(model=str(MODEL), flags=["--tp", "2"], sglang="0.5.11")
    found = estimate(host(free="17900"), args)
    assert (found.verdict, found.failure) == ("fails", "weights-oom")
    assert found.failed


def test_version_falls_back_to_the_newest() -> None:
    found = estimate(host(sglang=None), EstimateVramArgs(model=str(MODEL), python="/opt/x/bin/python"))
    assert found.sglang == "0.5.23"


def test_what_the_host_taught_is_used() -> None:
    learned = {"planner": [{"sglang": "0.5.11", "architecture": "Qwen3_5ForConditionalGeneration", "free": -0.4}]}
    args = EstimateVramArgs(model=str(MODEL), flags=["--tp", "2"], sglang="0.5.11")
    before, after = estimate(host(), args), estimate(host(), args, Context(history=learned))
    assert before.per_gpu_gib is not None
    assert after.per_gpu_gib is not None
    assert after.per_gpu_gib.free == pytest.approx(before.per_gpu_gib.free - 0.4, abs=0.011)
    assert "1 launch" in after.calibration


def test_no_cards_and_cards_without_a_size() -> None:
    args = EstimateVramArgs(model=str(MODEL), sglang="0.5.11")
    with pytest.raises(ToolFailed, match="no usable GPU"):
        estimate(host(cards=0), args)
    with pytest.raises(InputError, match="no memory size"):
        estimate(host(total="[N/A]"), args)
    one = estimate(host(), EstimateVramArgs(model=str(MODEL), sglang="0.5.11", gpus=[1]))
    assert one.gpus == 1
