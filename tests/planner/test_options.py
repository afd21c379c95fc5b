"""SGLang's command line: read as argparse reads it, refusals in its words, hints that help."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsagent_tools.sglang.arguments import apply_change, without_unknown
from opsagent_tools.sglang.options import parse, table


def test_prefixes_equals_and_negative_numbers() -> None:
    read = parse(["--tp", "2", "--speculative-algo=NEXTN", "--chunked-prefill-size", "-1", "--disable-radix"], "0.5.11")
    assert read.refused is None
    assert read.values == {
        "tp_size": 2,
        "speculative_algorithm": "NEXTN",
        "chunked_prefill_size": -1,
        "disable_radix_cache": True,
    }


def test_lists_end_at_the_next_option() -> None:
    read = parse(["--cuda-graph-bs", "1", "2", "4", "--tp-size", "2"], "0.5.11")
    assert read.values == {"cuda_graph_bs": [1, 2, 4], "tp_size": 2}


@pytest.mark.parametrize(
    ("flags", "cause", "said", "hint"),
    [
        (["--mem-fraction", "0.9", "--frobnicate"], "unknown-flag", "--frobnicate", "no modelled SGLang"),
        (["--enable-prefix-caching"], "unknown-flag", "unrecognized arguments", ""),
        (["--tool-call-parser", "qwen3_codr"], "invalid-flag-value", "invalid choice: 'qwen3_codr'", "qwen3_coder"),
        (["--tp-size", "two"], "invalid-flag-value", "invalid int value: 'two'", "int"),
        (["--tp-size"], "invalid-flag-value", "expected one argument", ""),
        (["--disable-radix-cache=yes"], "invalid-flag-value", "ignored explicit argument", ""),
        (["--speculative-num", "3"], "unknown-flag", "ambiguous option", "--speculative-num-steps"),
        (["--mamba-radix-cache-strategy", "auto"], "unknown-flag", "unrecognized", "--mamba-scheduler-strategy"),
        (["stray"], "unknown-flag", "stray", ""),
    ],
)
def test_refusals(flags: list[str], cause: str, said: str, hint: str) -> None:
    refused = parse(flags, "0.5.11").refused
    assert refused is not None
    assert refused.cause == cause
    assert said in refused.words
    assert hint in refused.hint


def test_another_version_has_it() -> None:
    """A flag that came later or went away is refused with the version that has it, or its new name."""
    gone = parse(["--mamba-scheduler-strategy", "extra_buffer"], "0.5.23").refused
    assert gone is not None
    assert "--mamba-radix-cache-strategy" in gone.hint
    later = next(name for name in table("0.5.23") if name not in table("0.5.11"))
    refused = parse([later, "1"], "0.5.11").refused
    assert refused is not None
    assert "0.5.23" in refused.hint


@pytest.mark.parametrize("version", ["0.5.9", "0.5.10", "0.5.11", "0.5.23"])
def test_tables(version: str) -> None:
    """Options that move memory are there, with their types."""
    options = table(version)
    for name, kind in (("--tp-size", "int"), ("--mem-fraction-static", "float"), ("--max-running-requests", "int")):
        assert options[name].type == kind
    assert options["--disable-radix-cache"].kind == "switch"
    assert options["--speculative-algorithm"].dest == "speculative_algorithm"


def test_a_change_replaces_in_place_and_removes() -> None:
    flags = ["--tensor-parallel-size", "1", "--mem-fraction=0.8", "--disable-radix-cache"]
    change = {"--tp": "2", "--mem-fraction-static": "0.9", "--disable-radix-cache": None, "--max-running-requests": "4"}
    assert apply_change(flags, change, "0.5.11") == [
        "--tensor-parallel-size", "2", "--mem-fraction", "0.9", "--max-running-requests", "4",
    ]  # fmt: skip


def test_unknown_flags_are_left_out() -> None:
    flags = ["--tp", "2", "--nonsense", "1", "--mem-fraction-static", "0.9"]
    assert without_unknown(flags, "0.5.11") == ["--tp", "2", "--mem-fraction-static", "0.9"]


@given(st.lists(st.one_of(st.text(max_size=12), st.sampled_from(sorted(table("0.5.11")))), max_size=8))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    read = parse(words, "0.5.11")
    assert read.refused is not None or sum(end - start for _dest, start, end in read.spans) == len(words)
    assert read.refused is None or read.refused.words


@pytest.mark.parametrize("version", ["0.5.10", "0.5.11", "0.5.23"])
@pytest.mark.parametrize(
    ("word", "value"), [("8k", 8000), ("8Ki", 8192), ("1.5k", 1500), ("0.25M", 250_000), ("32768", 32768)]
)
def test_counts_with_suffixes(version: str, word: str, value: int) -> None:
    for flag, dest in (("--context-length", "context_length"), ("--max-total-tokens", "max_total_tokens")):
        assert parse([flag, word], version).values == {dest: value}


def test_counts_that_sglang_refuses() -> None:
    for word, said in (("8K", "Invalid integer value: '8K'"), ("1.5Ki", "Decimals are not allowed")):
        refused = parse(["--context-length", word], "0.5.11").refused
        assert refused is not None
        assert said in refused.words
    old = parse(["--context-length", "8k"], "0.5.9").refused
    assert old is not None
    assert "invalid int value" in old.words


def test_json_values_are_read() -> None:
    given_json = parse(["--preferred-sampling-params", '{"temperature": 0.6}'], "0.5.11")
    assert given_json.values == {"preferred_sampling_params": {"temperature": 0.6}}
    refused = parse(["--preferred-sampling-params", "temperature=0.6"], "0.5.11").refused
    assert refused is not None
    assert "invalid loads value" in refused.words


def test_a_switch_with_an_opposite() -> None:
    assert parse(["--no-lora-strict"], "0.5.11").values == {"lora_strict_loading": False}
    assert parse(["--lora-strict-loading"], "0.5.11").values == {"lora_strict_loading": True}


def test_lists_that_may_be_empty() -> None:
    assert parse(["--lora-paths", "--tp", "2"], "0.5.11").values == {"lora_paths": [], "tp_size": 2}


def test_an_option_with_a_space_in_its_value_is_no_value() -> None:
    """argparse looks for a known option first, and only then takes a word with a space as a value."""
    refused = parse(["--offload-mode", "--served-model-name=a b"], "0.5.11").refused
    assert refused is not None
    assert "--offload-mode: expected one argument" in refused.words
    assert parse(["--served-model-name", "a b"], "0.5.11").values == {"served_model_name": "a b"}


def test_literal_choices_have_the_type_of_their_values() -> None:
    assert parse(["--fuseep-mode", "1", "--deepep-dispatcher-output-dtype", "fp8"], "0.5.23").values == {
        "fuseep_mode": 1,
        "deepep_dispatcher_output_dtype": "fp8",
    }
