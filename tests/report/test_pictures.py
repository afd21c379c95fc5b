"""The pictures say what the journal says, and are well-formed whatever the numbers are."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsagent.data import data_dir
from opsagent.report.model import StatusReport
from opsagent_tools.sglang.bars import TERMS, Bar, bars_picture, keys
from opsagent_tools.sglang.picture import Point, frontier_picture

FOLDERS = sorted(path for path in data_dir("transcripts").iterdir() if path.is_dir())
SVG = "{http://www.w3.org/2000/svg}"


def report_of(folder: Path) -> StatusReport:
    return StatusReport.model_validate(json.loads((folder / "report.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_parts_of_a_bar_add_up(folder: Path) -> None:
    report = report_of(folder)
    assert report.budget
    for bar in report.budget:
        assert sum(part.gib for part in bar.segments) == pytest.approx(bar.whole_gib, abs=0.15), bar.label
    ranks = [bar for bar in report.budget if bar.source == "logged"]
    assert report.deployment is not None
    assert len(ranks) == report.deployment.tp


def test_the_story_shows_what_is_set_aside_for_nobody() -> None:
    bars = {
        bar.source: {part.term: part.gib for part in bar.segments}
        for bar in report_of(data_dir("transcripts") / "story").budget
    }
    assert bars["asked"]["set_aside"] > 6
    assert "set_aside" not in bars["planned"]
    assert bars["planned"]["kv_cache"] > 5 * bars["asked"]["kv_cache"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_frontier_is_what_runs_what_was_asked_and_the_options(folder: Path) -> None:
    report = report_of(folder)
    points = report.frontier
    limits = {limit.name: limit.value for limit in report.limits}
    assert points[0].kind == "chosen"
    assert points[0].max_total_num_tokens == limits["max_total_num_tokens"]
    options = [point for point in points if point.kind == "option"]
    assert [point.change for point in options] == [option.change for option in report.trade_offs]
    assert [point.mark for point in options] == [str(n) for n in range(1, len(options) + 1)]


def test_an_option_costs_memory_against_the_flags_that_run() -> None:
    options = report_of(data_dir("transcripts") / "story").trade_offs
    costs = {json.dumps(option.change): option.costs for option in options}
    assert "GiB" not in costs['{"--max-running-requests": "8"}'], "the pools take the same: nothing is lost"
    assert "4.8 GiB less" in costs['{"--mem-fraction-static": "0.82"}']


NUMBERS = st.integers(min_value=1, max_value=10_000_000)
POINTS = st.builds(
    Point, st.text(max_size=8), st.sampled_from(["asked", "chosen", "option"]), st.integers(1, 5000), NUMBERS
)


@settings(max_examples=25)
@given(
    st.lists(POINTS, min_size=1, max_size=12),
    st.none() | st.integers(1, 4096),
    st.none() | NUMBERS,
    st.none() | NUMBERS,
)
def test_any_frontier_is_a_picture(
    points: list[Point], at_once: int | None, tokens: int | None, context: int | None
) -> None:
    points = [Point("".join(c for c in p.mark if c.isprintable()), p.kind, p.requests, p.tokens) for p in points]
    root = ElementTree.fromstring(frontier_picture(points, wish_requests=at_once, wish_tokens=tokens, context=context))
    assert len(root.findall(f".//{SVG}path")) == len(points)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc") is not None


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(sorted(TERMS)), st.floats(0, 200)), max_size=8), min_size=1, max_size=9)
)
def test_any_bars_are_a_picture(rows: list[list[tuple[str, float]]]) -> None:
    bars = [Bar("gpu <0>", max(1.0, sum(gib for _slug, gib in parts)), parts) for parts in rows]
    root = ElementTree.fromstring(bars_picture(bars))
    numbers = set(keys(bars).values())
    written = {text.text for text in root.findall(f".//{SVG}text")}
    assert numbers <= written, "every part carries its number: colour alone says nothing"
