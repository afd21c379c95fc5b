"""The engine's logs against those of real servers, line by line: order and templates, numbers masked."""

from __future__ import annotations

import re

import pytest
from lab_engine.support import mask, real, recorded_command, records, replay, streams

from opsagent_lab.engine.launch import Shard

RECORDS = records()
SERVING = (
    "Prefill batch",
    "Decode batch",
    "INFO:     ",
    "fallback token",
    "fired up",
    "is deprecated and will be",
    "ERROR:",
)
"""What comes after the schedulers are ready: the served part has its own tests."""


def _loading(lines: list[str]) -> list[str]:
    return [line for line in lines if not any(word in line for word in SERVING)]


def _settled(lines: list[str]) -> list[str]:
    """Lines whose place differs from run to run (another process prints them) go to the end, sorted."""
    floating = (
        "Tokenizer",
        "Loading tokenizer",
        "[transformers]",
        "Init torch distributed",
        "return func",
        "warnings.warn",
    )
    moving = [line for line in lines if any(word in line for word in floating) or line.startswith("SITE/")]
    return [line for line in lines if line not in moving] + sorted(moving)


@pytest.mark.parametrize(
    "name",
    [
        "tp2-seed2-mrr4",
        "tp2-mrr8-msf82",
        "tp2-nomtp",
        "tp1-mtp-extra",
        "tp1-plain",
        "t-moe30b",
        "dense8b-cg",
        "f-port-busy",
    ],
)
def test_every_line_of_a_launch_that_became_ready(name: str) -> None:
    ours, theirs = streams(replay(RECORDS[name]).lines), streams(real(name))
    assert ours.keys() == theirs.keys()
    for who in theirs:
        assert _settled(_loading(ours[who])) == _settled(_loading(theirs[who])), who


@pytest.mark.parametrize("name", ["t-seed2-exact", "t-q3next80b-tp2"])
def test_every_line_up_to_where_the_recording_was_cut(name: str) -> None:
    ours, theirs = streams(replay(RECORDS[name]).lines), streams(real(name))
    for who in ("TP0", "TP1"):
        assert ours[who][: len(theirs[who])] == theirs[who]


def test_two_ranks_that_fail_print_what_the_real_ones_printed() -> None:
    ours, theirs = streams(replay(RECORDS["tp2-seed1-fixed"]).lines), streams(real("tp2-seed1-fixed"))
    assert ours == theirs


@pytest.mark.parametrize("name", ["tp1-mtp-noflag", "t-nemotronh", "f-ctx-too-long"])
def test_a_refusal_prints_the_same_lines(name: str) -> None:
    ours = [mask(line) for line in replay(RECORDS[name]).lines if line.strip()]
    theirs = [mask(line) for line in real(name) if line.strip() and not line.startswith("# ")]
    assert ours == theirs


def test_an_unknown_architecture_is_refused_in_the_words_of_transformers() -> None:
    ours = [mask(line) for line in replay(RECORDS["f-unknown-arch"]).lines if line.strip()]
    theirs = [mask(line) for line in real("f-unknown-arch") if line.strip() and not line.startswith("# ")]
    assert [line for line in ours if "generation config" not in line] == theirs


def test_weights_that_do_not_fit_beside_a_neighbour() -> None:
    out = replay(recorded_command("f-load-oom"), others=((3678, 119_050),))
    ours, theirs = streams(out.lines)["main"], streams(real("f-load-oom"))["main"]
    assert out.died is not None
    assert out.died.cause == "gpu-memory-occupied"
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
    assert [line.split("Tried")[0] for line in ours] == [line.split("Tried")[0] for line in theirs]
    oom = [next(line for line in lines if line.startswith(words)) for lines in (ours, theirs)]
    units = [re.sub(r"[GM]iB", "B", line) for line in oom]
    assert units[0] == units[1]


@pytest.mark.parametrize(("name", "wrong"), [("f-truncated", "truncated"), ("f-missing-shard", "shape")])
def test_a_damaged_checkpoint_prints_the_same_lines(name: str, wrong: str) -> None:
    out = replay(recorded_command(name), shards=(Shard("model.safetensors", 2**20, wrong),))
    both = []
    for lines in (out.lines, real(name)):
        plain = [re.sub(r"Multi-thread loading shards:.*?it/s\]", "", line) for line in lines]
        both.append(_settled(streams(plain)["main"]))
    assert both[0] == both[1]


def test_the_order_of_ranks_within_one_phase_is_the_only_freedom() -> None:
    """Without ranks the whole recording is one sequence: the phases come in the real order."""
    marks = (
        "Init torch distributed ends",
        "Load weight begin",
        "Load weight end",
        "Memory pool end",
        "max_total_num_tokens=",
    )
    for name in ("tp1-mtp-extra", "tp2-seed2-mrr4"):
        seen = [
            [m for line in lines for m in marks if m in line] for lines in (replay(RECORDS[name]).lines, real(name))
        ]
        assert seen[0] == seen[1]
