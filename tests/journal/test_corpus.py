"""Runs of every released format still open, and give the state that they gave then. Never change a file of the corpus."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from opsagent.journal import FileJournal, fold, read_log
from opsagent.journal.format import EVENT_TYPES, FORMAT, FORMATS, encode
from opsagent.journal.reader import read_blob
from opsagent.verify import cited_blobs

CORPUS = Path(__file__).parent / "corpus"
FROZEN = {
    "v1": "367f6f4bdfd9c424bcadc286c77d3c0f974541ae4ee6d8943ab36228a713a617",
    "v2": "07df6aea86bd2218b09eba0204b456f1f8227a9b514ee19f9d6997044d573269",
}
"""sha256 of each version's events.jsonl, so that nobody mends a test by changing history."""


def test_every_format_has_a_frozen_run() -> None:
    assert {f"v{number}" for number in FORMATS} == {folder.name for folder in CORPUS.iterdir()} == set(FROZEN)
    assert max(FORMATS) == FORMAT


@pytest.mark.parametrize("version", FROZEN)
def test_a_frozen_run_reads_as_it_did(version: str) -> None:
    folder = CORPUS / version
    assert hashlib.sha256((folder / "events.jsonl").read_bytes()).hexdigest() == FROZEN[version]
    log, expected = read_log(folder), json.loads((folder / "expected.json").read_text())
    state = fold(log.events)
    assert log.head == expected["head"]
    assert (state.seq, state.status, state.exit_code) == (expected["events"], expected["status"], expected["exit_code"])
    assert state.bindings == expected["bindings"]
    assert state.params == expected["params"]
    assert {name: call.status for name, call in state.calls.items()} == expected["calls"]
    assert {name: [step.entered, step.left] for name, step in state.steps.items()} == expected["steps"]
    assert {name: getattr(state.usage, name) for name in expected["usage"]} == pytest.approx(expected["usage"])
    assert [remedy["cause"] for remedy in state.remedies] == expected["remedies"]
    assert state.redactions == expected["redactions"]
    for event in log.events:
        for sha256 in cited_blobs(event):
            assert read_blob(folder, sha256)


def test_the_newest_frozen_run_has_every_type_and_is_what_we_write() -> None:
    folder = CORPUS / f"v{FORMAT}"
    log = read_log(folder)
    assert {event.type for event in log.events} == set(EVENT_TYPES)
    assert b"".join(encode(event) + b"\n" for event in log.events) == (folder / "events.jsonl").read_bytes()


def test_a_frozen_run_can_be_gone_on_with(tmp_path: Path) -> None:
    folder = CORPUS / f"v{FORMAT}"
    (tmp_path / "events.jsonl").write_bytes((folder / "events.jsonl").read_bytes())
    with FileJournal.resume(tmp_path) as journal:
        journal.append("run.resumed")
    assert read_log(tmp_path).events[-1].seq == len(read_log(folder).events) + 1
