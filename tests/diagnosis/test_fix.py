"""Remedies: in flags that the running version has, and with the numbers of the log."""

from __future__ import annotations

import pytest
from diagnosis.examples import Example, examples, real

from opsagent_tools.sglang.diagnosis import diagnose
from opsagent_tools.sglang.options import table

FAILED = [e for e in examples() if e.verdict == "failed"]


@pytest.mark.parametrize("version", ["0.5.9", "0.5.10", "0.5.11", "0.5.23"])
def test_every_flag_of_a_remedy_exists_in_the_version(version: str) -> None:
    options = table(version)
    for example in FAILED:
        fix = diagnose(example.data, version=version).fix
        assert [f for f, value in fix.flags.items() if value is not None and f not in options] == [], example.name


def _flags(text: str, version: str | None = None) -> dict[str, object]:
    return dict(diagnose(text.encode(), version=version).fix.flags)


def test_the_nearest_choice() -> None:
    assert _flags(real("f-parser-typo")) == {"--tool-call-parser": "qwen3_coder"}


def test_the_derived_context() -> None:
    assert _flags(real("f-ctx-too-long")) == {"--context-length": 40960}


def test_the_next_port() -> None:
    assert _flags(real("f-port-busy")) == {"--port": 31101}


def test_the_renamed_flag_of_a_newer_version() -> None:
    text = real("tp1-mtp-noflag")
    assert _flags(text, "0.5.11") == {"--mamba-scheduler-strategy": "extra_buffer"}
    assert _flags(text, "0.5.23") == {"--mamba-radix-cache-strategy": "extra_buffer"}
    assert diagnose(text.encode(), version="0.5.10").fix.env == {"SGLANG_ENABLE_SPEC_V2": "1"}


def test_another_engine_s_option_is_translated() -> None:
    flags = _flags("x.py: error: unrecognized arguments: --max-model-len 32768 --gpu-memory-utilization=0.9\n")
    assert flags == {
        "--max-model-len": None, "--context-length": "32768", "--gpu-memory-utilization": None,
        "--mem-fraction-static": "0.9",
    }  # fmt: skip


def _no_room(begin: float, end: float, fraction: float) -> str:
    return (
        f"[2026-05-01 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=1, mem_fraction_static={fraction})\n"
        f"[2026-05-01 10:00:01 TP0] Load weight begin. avail mem={begin} GB\n"
        f"[2026-05-01 10:00:20 TP0] Load weight end. type=LlamaForCausalLM, "
        f"avail mem={end} GB, mem usage={begin - end:.2f} GB.\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
    )


def test_the_fraction_is_raised_when_that_helps_and_to_a_value_that_does() -> None:
    flags = _flags(_no_room(47.0, 9.4, 0.75))
    assert flags == {"--mem-fraction-static": 0.86}


def test_the_fraction_is_not_raised_when_the_weights_fill_the_card() -> None:
    flags = _flags(_no_room(23.0, 0.4, 0.9))
    assert "--mem-fraction-static" not in flags
    assert flags["--tp-size"] == 2


def test_at_graph_capture_it_is_lowered() -> None:
    log = (
        "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='/m', mem_fraction_static=0.9, tokenizer_backend='x')\n"
        "[2026-05-01 10:00:22 TP0] Capture cuda graph begin. avail mem=0.90 GB\n"
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 20.00 MiB.\n"
    )
    assert _flags(log) == {"--mem-fraction-static": 0.85, "--cuda-graph-max-bs": 16}


def test_a_size_that_divides() -> None:
    assert _flags("AssertionError: 24 is not divisible by 16\n") == {"--tp-size": 8}


def test_the_host_is_asked_what_the_log_cannot_say() -> None:
    example: Example = next(e for e in FAILED if e.cause == "worker-sigkilled")
    assert ["dmesg", "-T"] in [n.argv for n in diagnose(example.data).needs]
