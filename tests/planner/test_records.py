"""Prediction against what real servers logged, record by record."""

from __future__ import annotations

import statistics

import pytest
from planner.records import UNEXPLAINED, Record, every, predicted

SCORED = [record for record in every() if record.scored and record.id not in UNEXPLAINED]
WITH_FREE = [record for record in SCORED if record.free_gib is not None]


@pytest.mark.parametrize("record", SCORED, ids=lambda record: record.id)
def test_verdict_and_failure(record: Record) -> None:
    plan = predicted(record)
    if record.outcome == "fails":
        assert plan.verdict == "fails"
        if record.failure is not None:
            assert plan.failure == record.failure
        assert plan.cause
        assert plan.limits is None
    elif record.outcome == "ready":
        assert plan.verdict == "fits", plan.words


@pytest.mark.parametrize("record", WITH_FREE, ids=lambda record: record.id)
def test_limits(record: Record) -> None:
    plan, logged = predicted(record), record.logged
    if record.outcome == "fails" or plan.limits is None:
        return
    if logged["max_total_num_tokens"]:
        assert plan.limits.max_total_num_tokens == pytest.approx(logged["max_total_num_tokens"], rel=0.03)
        low, high = plan.intervals.max_total_num_tokens or (0, 0)
        step = 0.001 * logged["max_total_num_tokens"]
        assert low - step <= logged["max_total_num_tokens"] <= high + step
    if logged["max_running_requests"]:
        assert plan.limits.max_running_requests == logged["max_running_requests"]


@pytest.mark.parametrize("record", WITH_FREE, ids=lambda record: record.id)
def test_memory(record: Record) -> None:
    plan, logged = predicted(record), record.logged
    gib = plan.per_gpu_gib
    if gib is None:
        return
    if logged["weights_gib"]:
        assert gib.weights == pytest.approx(logged["weights_gib"], abs=0.1)
    if logged["draft_weights_gib"]:
        assert gib.draft_weights == pytest.approx(logged["draft_weights_gib"], abs=0.1)
    if logged["pool_end_avail_gib"] and record.outcome != "fails":
        assert gib.pool_end_avail == pytest.approx(logged["pool_end_avail_gib"], abs=0.15)
    if logged["mamba_slots"] and plan.slots is not None:
        assert abs(plan.slots - logged["mamba_slots"]) <= max(1, 1e-4 * logged["mamba_slots"])


def test_median_token_error() -> None:
    errors = []
    for record in WITH_FREE:
        plan = predicted(record)
        if plan.limits is not None and record.logged["max_total_num_tokens"]:
            errors.append(abs(plan.limits.max_total_num_tokens / record.logged["max_total_num_tokens"] - 1))
    assert len(errors) > 30
    assert statistics.median(errors) < 0.001


def test_intervals_from_total_memory_alone() -> None:
    """Where the card was not shared, the logged value lies in the interval for nine records of ten, and it is not wide."""
    inside, widths = [], []
    for record in SCORED:
        plan = predicted(record, total_only=True)
        span, logged = plan.intervals.max_total_num_tokens, record.logged["max_total_num_tokens"]
        if record.emulated or record.outcome == "fails" or not logged or span is None:
            continue
        inside.append(span[0] <= logged <= span[1])
        widths.append((span[1] - span[0]) / 2 / logged)
    assert sum(inside) >= 0.9 * len(inside)
    assert statistics.median(widths) <= 0.12


def test_unexplained_records_are_still_known() -> None:
    assert UNEXPLAINED.keys() <= {record.id for record in every()}
