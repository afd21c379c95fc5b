"""From a log to the cause: every example, its evidence, and what may stand around it."""

from __future__ import annotations

import random

import pytest
from diagnosis.examples import ABSENCE, HEALTHY, Example, examples, real, recorded, variants
from hypothesis import given, settings
from hypothesis import strategies as st

from opsagent_tools.sglang.diagnosis import CAUSES, Diagnosis, diagnose
from opsagent_tools.sglang.diagnosis.signature import knowledge

EXAMPLES = examples()
FAILED = [e for e in EXAMPLES if e.verdict == "failed" and e.cause not in ABSENCE]
NOTES = [e for e in variants() if e.verdict == "healthy"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_the_cause_is_named(example: Example) -> None:
    found = diagnose(example.data)
    assert (found.verdict, found.cause) == (example.verdict, example.cause)
    if example.verdict == "failed":
        assert found.evidence


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_evidence_stands_on_its_line(example: Example) -> None:
    lines = example.text.split("\n")
    found = diagnose(example.data)
    for quoted in (*((e.line, e.text) for e in found.evidence), *((n.line, n.text) for n in found.noise)):
        number, text = quoted
        assert " ".join(text.rstrip("…").split()) in " ".join(lines[number - 1].split())


def _interleave(one: str, other: str, seed: int) -> str:
    chance, a, b, out = random.Random(seed), one.split("\n"), other.split("\n"), []
    while a or b:
        out.append(a.pop(0) if a and (not b or chance.random() < 0.5) else b.pop(0))
    return "\n".join(out)


@settings(max_examples=30, deadline=None)
@given(example=st.sampled_from(FAILED), healthy=st.sampled_from(HEALTHY), seed=st.integers(0, 999))
def test_a_healthy_log_before_after_or_between_does_not_change_the_cause(
    example: Example, healthy: str, seed: int
) -> None:
    other = real(healthy)
    for text in (other + "\n" + example.text, example.text.rstrip("\n") + "\n" + other):
        assert diagnose(text.encode()).cause == example.cause
    if example.name not in UNFRAMED:
        assert diagnose(_interleave(example.text, other, seed).encode()).cause == example.cause


UNFRAMED = {e.name for e in FAILED if e.cause.startswith(("oom-", "gpu-memory")) and "File " not in e.text}
"""Out-of-memory errors without frames are placed by the phase alone, which a second server's lines blur."""


@settings(max_examples=30, deadline=None)
@given(example=st.sampled_from(FAILED), more=st.integers(0, 5))
def test_cutting_after_the_decisive_line_does_not_change_the_cause(example: Example, more: int) -> None:
    last = max(e.line for e in diagnose(example.data).evidence)
    cut = "\n".join(example.text.split("\n")[: last + more])
    assert diagnose(cut.encode()).cause == example.cause


@settings(max_examples=25, deadline=None)
@given(example=st.sampled_from(EXAMPLES), size=st.integers(1, 4096))
def test_chunks_lines_and_colours_make_no_difference(example: Example, size: int) -> None:
    data = example.data
    whole = diagnose(data)
    chunks = diagnose(data[i : i + size] for i in range(0, len(data), size))
    assert (chunks.cause, chunks.evidence) == (whole.cause, whole.evidence)
    assert diagnose(example.text.splitlines()).cause == whole.cause
    red = "\n".join(f"\x1b[31m{line}\x1b[0m" if line else "" for line in example.text.split("\n"))
    assert diagnose(red.encode()).cause == whole.cause
    assert diagnose(example.text.encode("utf-16")).cause == whole.cause


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=2000))
def test_any_bytes_give_an_answer(data: bytes) -> None:
    assert diagnose(data).verdict in ("failed", "healthy", "unknown")


def test_every_cause_has_words_signatures_and_an_example() -> None:
    shown = {e.cause for e in EXAMPLES}
    signed = {s.cause for s in knowledge().signatures}
    for slug, cause in CAUSES.items():
        assert cause.means
        assert cause.proof
        assert cause.fix
        assert slug in signed
        assert slug in shown, slug
    assert len(CAUSES) == 86


def test_two_faults_are_two() -> None:
    both = diagnose((real("f-port-busy") + real("f-truncated")).encode())
    assert both.cause == "port-in-use"
    assert "checkpoint-shard-corrupt" in both.also


def test_a_chain_is_reported_as_a_chain() -> None:
    found = diagnose(real("f-unknown-arch").encode())
    assert [link.type for link in found.chain][:2] == ["KeyError", "ValueError"]


def test_noise_is_listed_with_its_reason() -> None:
    found = diagnose(real("tp2-mrr8-msf82").encode())
    assert found.verdict == "healthy"
    assert {"optional-import-noise", "generation-config-noise", "tokenizer-noise"} <= set(found.also)
    assert all(n.reason for n in found.noise)


def test_an_error_that_nothing_explains_stays_unknown() -> None:
    log = "[2026-05-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\nZorgError: it zorged\n"
    found = diagnose(log.encode())
    assert (found.verdict, found.cause) == ("unknown", "none")
    assert any("zorged" in e.text for e in found.evidence)
    assert found.needs


def test_the_json_keeps_its_keys() -> None:
    found = Diagnosis.model_validate(diagnose(real("tp1-mtp-noflag").encode()).model_dump())
    assert set(found.model_dump()) >= {
        "verdict", "cause", "confidence", "evidence", "also", "fix", "phase", "sglang", "needs",
    }  # fmt: skip
    assert found.phase == "arguments"
    assert found.fix.flags == {"--mamba-scheduler-strategy": "extra_buffer"}


def test_secrets_of_the_arguments_line_are_not_quoted() -> None:
    log = "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='/m', api_key='sk-very-secret', port=1) error exception\n"
    assert "sk-very-secret" not in diagnose(log.encode()).model_dump_json()


@pytest.mark.parametrize("example", recorded(), ids=lambda e: e.name)
def test_the_version_is_concluded_from_the_arguments(example: Example) -> None:
    assert diagnose(example.data).sglang in ("0.5.11", None)
