"""Learning from launches: observations of one host correct the next prediction on it."""

from __future__ import annotations

import pytest
from planner.records import records

from opsagent_tools.sglang.calibration import KEPT, NO_CALIBRATION, calibration_of, observe, remember
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.planner import plan

ARCHITECTURE = "Qwen3_5ForConditionalGeneration"
CARD = GpuFacts("NVIDIA H200", 143771)
RECORD = next(record for record in records("recorded") if record.id == "tp1-plain")


def logged() -> dict[str, float]:
    seen = RECORD.logged
    return {
        "free": RECORD.free_gib or 0.0,
        "weights": seen["weights_gib"],
        "pool_end_avail": seen["pool_end_avail_gib"],
    }


def predict(history: list[dict[str, object]]) -> tuple[dict[str, object], float]:
    learned = calibration_of(history, "0.5.11", ARCHITECTURE)
    found = plan(RECORD.config, gpus=CARD, flags=RECORD.flags, sglang="0.5.11", calibration=learned, advise=False)
    assert found.per_gpu_gib is not None
    return found.model_dump(), abs(found.per_gpu_gib.free - logged()["free"])


def test_the_second_prediction_is_nearer_and_its_interval_narrower() -> None:
    first, off = predict([])
    history = remember([], observe({**first, "per_gpu_gib": {**first["per_gpu_gib"], "free": 138.0}}, logged()))  # type: ignore[dict-item]
    assert history[0]["free"] == pytest.approx(logged()["free"] - 138.0)
    history = remember([], observe(first, logged()))
    second, nearer = predict(history)
    assert nearer <= off + 1e-9
    assert nearer < 0.011

    def width(found: dict[str, object]) -> int:
        low, high = found["intervals"]["max_total_num_tokens"]  # type: ignore[index]
        return int(high - low)

    assert width(second) < width(first)
    assert "1 launch" in str(second["calibration"])


def test_corrections_do_not_add_up() -> None:
    """An observation of a corrected prediction says the same as one of the bare prediction."""
    history: list[dict[str, object]] = []
    for _ in range(5):
        found, _off = predict(history)
        history = remember(history, observe(found, logged()))
    values = [float(str(one["free"])) for one in history]
    assert max(values) - min(values) <= 0.011


def test_other_version_other_model_broken_history() -> None:
    seen = [{"sglang": "0.5.11", "architecture": ARCHITECTURE, "free": 0.5, "weights": 0.1}]
    assert calibration_of(seen, "0.5.23", ARCHITECTURE) == NO_CALIBRATION
    other = calibration_of(seen, "0.5.11", "Qwen3ForCausalLM")
    assert (other.free_gib, other.weights_gib) == (0.5, 0.0)
    for broken in (None, "x", 3, [1, {"free": "x"}], [{"sglang": "0.5.11", "free": 99.0}]):
        assert calibration_of(broken, "0.5.11", ARCHITECTURE).free_gib == 0.0


def test_one_odd_launch_does_not_bend_it_and_old_ones_go() -> None:
    seen = [{"sglang": "0.5.11", "architecture": ARCHITECTURE, "free": value} for value in (0.1, 0.12, 3.0, 0.11, 0.1)]
    assert calibration_of(seen, "0.5.11", ARCHITECTURE).free_gib == pytest.approx(0.11)
    history: list[dict[str, object]] = []
    for value in range(KEPT + 5):
        history = remember(history, {"free": value})
    assert len(history) == KEPT
    assert history[-1]["free"] == KEPT + 4
