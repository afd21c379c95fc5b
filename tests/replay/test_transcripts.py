"""The recorded runs that ship with the project: intact, and the same again when they are replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsagent.data import data_dir
from opsagent.report.model import StatusReport

FOLDERS = sorted(path for path in data_dir("transcripts").iterdir() if path.is_dir())


def opsagent(*words: str) -> int:
    from opsagent.cli import cli

    result = cli.main(list(words), standalone_mode=False)
    return int(result or 0)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_each_transcript_is_intact_and_replays_strictly(folder: Path) -> None:
    assert opsagent("verify", str(folder)) == 0
    assert opsagent("replay", str(folder), "--mode", "strict") == 0


def test_the_story_ends_better_than_it_did() -> None:
    """Two 48 GB cards: the story ended with 1 request and 19,198 tokens, MTP about to be switched off."""
    folder = data_dir("transcripts") / "story"
    report = StatusReport.model_validate_json((folder / "report.json").read_text(encoding="utf-8"))
    limits = {limit.name: limit.value for limit in report.limits}
    assert (report.status, report.exit_code, report.simulated) == ("verified", 0, True)
    assert limits["max_running_requests"] >= 4
    assert limits["max_total_num_tokens"] > 100_000
    assert report.deployment is not None
    assert (report.deployment.tp, report.deployment.speculation) == (2, "NEXTN 1/1/2")
    assert report.endpoint is not None
    assert report.endpoint.url
    assert report.weight_loads == 1
    assert report.trade_offs
    assert report.noise
    assert report.why


def test_the_refusal_was_predicted_confirmed_and_repaired_before_the_weights_were_read() -> None:
    folder = data_dir("transcripts") / "story"
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    (incident,) = [item for item in report["incidents"] if item["cause"] == "spec-needs-extra-buffer"]
    tools = {
        event["data"]["call"]["id"]: event["data"]["call"]["tool"] for event in events if event["type"] == "call.intent"
    }
    by_id = {f"e{event['seq']}": event for event in events}
    cited = [by_id[name] for name in incident["evidence"]]
    kinds = [tools[e["data"]["call"]] if e["type"] == "call.finished" else e["type"] for e in cited]
    assert kinds == ["estimate_vram", "preflight", "remedy.applied"]
    launched = min(
        e["seq"] for e in events if e["type"] == "call.started" and tools[e["data"]["call"]] == "launch_sglang"
    )
    assert max(event["seq"] for event in cited) < launched
    assert (incident["resolved"], incident["weight_loads_lost"]) == (True, 0)


def test_on_a_real_gpu_the_limits_were_as_predicted_and_garbage_was_called_so() -> None:
    """H200, SGLang 0.5.11, random weights: requests exact, tokens within 1 %, one load, degenerate text said so."""
    folder = data_dir("transcripts") / "h200-qwen36-dummy"
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    limits = {limit["name"]: limit for limit in report["limits"]}
    assert (report["status"], report["exit_code"], report["simulated"], report["weight_loads"]) == (
        "verified",
        0,
        False,
        1,
    )
    requests, tokens = limits["max_running_requests"], limits["max_total_num_tokens"]
    assert requests["value"] == requests["predicted"]
    assert abs(tokens["value"] - tokens["predicted"]) <= tokens["value"] // 100
    assert [item["cause"] for item in report["incidents"]] == ["spec-needs-extra-buffer"]
    assert "degenerate" in (folder / "report.md").read_text(encoding="utf-8")
