"""A launch on a host changes the next prediction there, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsagent.call import Call
from opsagent.journal.state import CallState, RunState
from opsagent.learning import expected_seconds, history_file, learn, load
from opsagent_tools.sglang.calibration import calibration_of

PLAN: dict[str, Any] = {
    "sglang": "0.5.11", "architecture": "Qwen3ForCausalLM", "per_gpu_gib": {"free": 46.8, "weights": 25.60},
}  # fmt: skip
LAUNCH: dict[str, Any] = {
    "state": "ready",
    "phase_seconds": {"weights": 41.0},
    "compared": [
        {"name": "free", "predicted": 46.8, "logged": 46.6, "unit": "GiB"},
        {"name": "weights", "predicted": 25.6, "logged": 25.7, "unit": "GiB"},
        {"name": "max_running_requests", "predicted": 4, "logged": 4, "unit": ""},
    ],
}


def finished(number: int, tool: str, host: str, result: dict[str, Any]) -> CallState:
    call = Call(id=f"c{number}", tool=tool, role="target", host=host, args={})
    return CallState(call, status="finished", ok=True, result=result)


def state(host: str) -> RunState:
    found = RunState()
    found.calls = {
        "c1": finished(1, "estimate_vram", host, PLAN),
        "c2": finished(2, "launch_sglang", host, LAUNCH),
    }
    return found


def test_the_difference_is_kept_by_host_and_corrects_the_next_plan(tmp_path: Path) -> None:
    assert learn(state("kpro5/ct129"), tmp_path) == ["kpro5/ct129"]
    history = load("kpro5/ct129", tmp_path)
    found = calibration_of(history["planner"], "0.5.11", "Qwen3ForCausalLM")
    assert round(found.free_gib, 2) == -0.2
    assert round(found.weights_gib, 2) == 0.1
    assert history["phase_seconds"] == {"weights": 41.0}
    assert calibration_of(history["planner"], "0.5.23", "Qwen3ForCausalLM").launches == 0
    assert load("other", tmp_path) == {}


def test_a_broken_history_is_no_history_and_is_replaced(tmp_path: Path) -> None:
    history_file("gpu1", tmp_path).write_text("{not json", encoding="utf-8")
    assert load("gpu1", tmp_path) == {}
    learn(state("gpu1"), tmp_path)
    assert len(load("gpu1", tmp_path)["planner"]) == 1


def test_a_launch_that_failed_teaches_nothing(tmp_path: Path) -> None:
    failed = state("gpu1")
    failed.calls["c2"].ok = False
    assert learn(failed, tmp_path) == []
    assert load("gpu1", tmp_path) == {}


def test_how_long_calls_take_is_kept_by_host_and_tool(tmp_path: Path) -> None:
    for took in (10.0, 30.0, 20.0):
        seen = state("gpu1")
        call = finished(3, "curl_test", "gpu1", {})
        call.duration_s = took
        command = finished(4, "ssh_exec", "gpu1", {})  # takes as long as what it runs: no expectation
        command.duration_s = took
        seen.calls |= {"c3": call, "c4": command}
        learn(seen, tmp_path)
    history = load("gpu1", tmp_path)
    assert expected_seconds(history, "curl_test") == 20.0
    assert expected_seconds(history, "ssh_exec") is None
    assert expected_seconds({"call_seconds": {"curl_test": "soon"}}, "curl_test") is None
    assert expected_seconds(load("gpu2", tmp_path), "curl_test") is None
