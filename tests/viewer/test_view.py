"""From events to what a viewer shows: every event has its row, long texts are clipped openly, claims have their proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from viewer.synthetic import HOSTILE, Stranger, hostile_run

from opsagent.fence import neutral
from opsagent.journal.intact import open_intact
from opsagent.viewer import View
from opsagent.viewer.claims import claims_of
from opsagent.viewer.clip import clip, fair_share
from opsagent.viewer.load import view_of
from opsagent.viewer.model import Fold
from opsagent.viewer.pretty import plain, readable

TRANSCRIPTS = sorted(
    path for path in (Path(__file__).parents[2] / "transcripts").iterdir() if (path / "events.jsonl").exists()
)


def view(folder: Path) -> View:
    return view_of(*open_intact(folder))


@pytest.mark.parametrize("folder", TRANSCRIPTS, ids=lambda path: path.name)
def test_every_event_has_its_row_and_every_claim_its_proof(folder: Path) -> None:
    seen = view(folder)
    events = open_intact(folder)[0].log.events
    assert sorted((row.event for row in seen.rows), key=lambda name: int(name[1:])) == [event.id for event in events]
    report = json.loads((folder / "report.json").read_text())
    assert {claim.text for claim in seen.claims} >= {said["text"] for said in report["why"]}
    assert [claim.missing for claim in seen.claims if claim.missing] == []
    rows = {row.event: row for row in seen.rows}
    for claim in seen.claims:
        for event in claim.evidence:
            assert claim.anchor in rows[event].proves
    assert not seen.warnings
    damaged = [fold.title for row in seen.rows for fold in row.folds if "damaged" in fold.title]
    assert damaged == []


def test_a_call_holds_its_approval_and_its_result_and_a_step_its_visits() -> None:
    seen = view(next(path for path in TRANSCRIPTS if path.name == "story"))
    steps = [section.step for section in seen.sections]
    assert steps.count("preflight") == 2
    assert [section.state for section in seen.sections if section.step == "preflight"] == ["open", "left"]
    calls = [item for section in seen.sections for item in section.items if item.shape == "call"]
    assert all(item.rows[0].type == "call.intent" for item in calls)
    asked = [item for item in calls if any(row.type == "approval.requested" for row in item.rows)]
    assert len(asked) == 10
    assert all([row.type for row in item.rows].count("approval.decided") == 1 for item in asked)
    assert {said.text for _call, said in seen.approvals} >= {"approved by scenario"}
    launch = next(item for item in calls if "launch_sglang" in item.rows[0].text)
    titles = [fold.title for row in launch.rows for fold in row.folds]
    assert "arguments" in titles
    assert "result" in titles
    assert any(title.startswith("output ") for title in titles)


CORPUS = sorted(path.parent for path in (Path(__file__).parents[1] / "journal" / "corpus").rglob("events.jsonl"))


@pytest.mark.parametrize("folder", CORPUS, ids=lambda path: path.name)
def test_every_type_of_event_that_was_ever_written_has_words(folder: Path) -> None:
    opened, damage = open_intact(folder)
    assert damage is None
    seen = view_of(opened, damage)
    assert len(seen.rows) == len(opened.log.events) > 10
    assert [row.text for row in seen.rows if "cannot be read" in row.text or "does not know" in row.text] == []


def test_thinking_secrets_and_reasons(tmp_path: Path) -> None:
    with Stranger(tmp_path) as run:
        run.append("run.started", run="r", params={})
        run.append("model.request", model="m", keep=0, new=[{"role": "user", "content": "hello"}])
        run.append("model.retry", why="busy", wait_s=1)
        run.append("model.response", model="m", message={"content": "yes"}, reasoning="because\nof this", calls=[])
        run.append("redaction.applied", rules={"api-key": 2}, by="e4")
        run.append("step.check", expr="a == 1", ok=False, values={"a": 2}, evidence=["e4"])
        run.append("something.new", what="from the future")
    seen = view(tmp_path)
    rows = {row.event: row for row in seen.rows}
    turn = next(item for item in seen.sections[0].items if item.shape == "turn")
    assert [row.event for row in turn.rows] == ["e2", "e3", "e4"]
    thinking = next(fold for fold in rows["e4"].folds if fold.shape == "thinking")
    assert thinking.text == "because\nof this"
    assert rows["e4"].secrets == 2
    assert rows["e5"].evidence == ("e4",)
    assert seen.secrets == {"api-key": 2}
    assert rows["e6"].evidence == ("e4",)
    assert [row.event for row in seen.problems] == ["e6"]
    assert "from the future" in rows["e7"].folds[0].text


def test_nothing_of_a_hostile_run_can_deceive(tmp_path: Path) -> None:
    hostile_run(tmp_path)
    seen = view(tmp_path)
    texts = [row.text for row in seen.rows] + [
        part for row in seen.rows for f in row.folds for part in (f.text, f.tail)
    ]
    texts += [claim.text for claim in seen.claims if "\\u202e" in claim.text]
    assert len(texts) > 30
    assert all(text == neutral(text) for text in texts)
    assert max(map(len, texts)) <= 32_000
    huge = next(fold for row in seen.rows for fold in row.folds if fold.title == "output huge")
    assert (huge.size, len(huge.text) + len(huge.tail)) == (3_000_000, 32_000)
    claim = seen.claims[0]
    assert claim.evidence == ("e9",)
    assert claim.missing == ("e99", 'e1"><script>', "e٣")
    assert "'x<script>" in huge.whole, "a stranger's run id is quoted in the command that people copy"


def test_a_missing_output_and_a_broken_report_are_said(tmp_path: Path) -> None:
    with Stranger(tmp_path) as run:
        run.append("run.started", run="r", params={})
        run.append("call.finished", call="c1", ok=True, result={"a": 1}, output={"log": "0" * 64})
    (tmp_path / "report.json").write_text("{")
    seen = view(tmp_path)
    assert len(seen.warnings) == 1
    assert [fold.title for fold in seen.rows[1].folds] == ["result", "output log (damaged)"]


def test_the_budget_is_kept_and_evidence_is_spared(tmp_path: Path) -> None:
    with Stranger(tmp_path) as run:
        run.append("run.started", run="r", params={})
        for number in range(50):
            run.append("call.finished", call=f"c{number}", ok=True, result={"text": "x" * 5000})
    (tmp_path / "report.json").write_text(json.dumps({"why": [{"text": "so", "evidence": ["e7"]}]}))
    seen = view_of(*open_intact(tmp_path), budget=50_000)
    sizes = {row.event: sum(len(f.text) + len(f.tail) for f in row.folds) for row in seen.rows}
    assert sizes["e7"] > 5000
    assert sum(sizes.values()) - sizes["e7"] <= 50_000
    assert seen.left_out == sum(f.left_out for row in seen.rows for f in row.folds) > 190_000


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 5000))
def test_fair_share_keeps_the_budget_and_wastes_none(sizes: list[int], budget: int) -> None:
    most = fair_share(sizes, budget)
    used = sum(min(size, most) for size in sizes)
    assert used <= budget
    assert used == sum(sizes) or budget - used < max(1, len(sizes))


@given(st.text(max_size=400), st.integers(1, 300), st.integers(1, 300))
def test_a_clipped_text_counts_what_is_missing(text: str, first: int, second: int) -> None:
    once = clip(Fold("t", text), first)
    twice = clip(once, second)
    for fold in (once, twice):
        assert fold.size == len(text)
        assert text.startswith(fold.text)
        assert text.endswith(fold.tail)
    assert len(twice.text) + len(twice.tail) <= max(second, 1) or twice == once
    assert clip(once, first) == once


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
    max_leaves=30,
)


@given(JSON)
def test_readable_says_everything_and_hides_nothing(value: Any) -> None:
    shown = readable(value)
    assert shown == neutral(shown)
    letters = "".join(char for char in json.dumps(value, ensure_ascii=True) if char.isdigit())
    if shown.isascii() and "\\" not in shown:
        assert [c for c in shown if c.isdigit()] == list(letters)


def test_readable_uses_its_lines_well() -> None:
    assert readable({"argv": ["a", "b"], "n": 1}) == '{"argv": ["a", "b"], "n": 1}'
    argv = [f"--flag-{n}" for n in range(40)]
    lines = readable({"argv": argv}).splitlines()
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 110
    assert readable({"log": "one line and more\ntwo\n"}).splitlines() == ['{"log": "one line and more\\ntwo\\n"}']
    assert readable("one\ntwo\n").splitlines() == ['"one', '    two\\n"']


def test_plain_drops_colours_and_writes_out_the_rest() -> None:
    assert plain("a\x1b[1;31mb\x1b[0m\r\n10%\r20%\r\n\x1b[2Jc\u202ed") == "ab\n10%\n20%\n\\x1b[2Jc\\u202ed"


def test_claims_of_parts_that_are_not_known() -> None:
    claims = claims_of({"new_part": [{"a": 1, "evidence": ["e1"]}], "limits": [{"evidence": ["e2"]}], "x": 3}, known=2)
    assert [(claim.part, claim.text, claim.evidence) for claim in claims] == [
        ("Limits", "", ("e2",)),
        ("new part", "a 1", ("e1",)),
    ]
    assert HOSTILE in claims_of({"why": [{"text": HOSTILE, "evidence": []}]}, known=0)[0].text
