"""Logs written from the list of causes and from sources, without a look at the signatures: see tests/data/README.md."""

from __future__ import annotations

import pytest
from diagnosis.examples import DATA, Example, sections

from opsagent_tools.sglang.diagnosis import diagnose

BLIND = [e for path in sorted((DATA / "variants" / "blind").glob("*.txt")) for e in sections(path)]


@pytest.mark.parametrize("example", BLIND, ids=lambda e: e.name)
def test_the_cause_is_named_and_its_evidence_stands_there(example: Example) -> None:
    found = diagnose(example.data)
    assert (found.verdict, found.cause) == (example.verdict, example.cause)
    lines = example.text.split("\n")
    for quoted in found.evidence:
        assert " ".join(quoted.text.rstrip("…").split()) in " ".join(lines[quoted.line - 1].split())
