"""download_model against a simulated hub: stalls are cut, wrong files fetched again, refusals named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab_target import Target, target

from opsagent_tools.download_model import DownloadModelArgs, DownloadModelResult, run
from opsagent_tools.errors import InputError, ToolFailed

ENV = 'venvs."/opt/sglang" = { sglang = "0.5.11" }\n'


def fetch(at: Target, call: str = "c1", repo: str = "Qwen/Qwen3-8B", **more: Any) -> DownloadModelResult:
    args = DownloadModelArgs(repo=repo, path="/srv/models/m", python="/opt/sglang/bin/python", **more)
    return run(at.host, args, at.ctx(call))


def hub(**settings: str) -> str:
    return ENV + "[settings.hub]\nrate_mib_s = 900\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())


def test_a_stall_is_cut_and_resumed_another_way(tmp_path: Path) -> None:
    with target(tmp_path, hub(stall_at="7_000_000_000", stall_over='"xet"')) as at:
        seen = fetch(at)
        assert seen.complete
        assert seen.verified
        assert seen.created
        assert seen.stalls == 1
        assert [one.way for one in seen.attempts] == ["xet", "http"]
        again = fetch(at, "c2")
        assert again.complete
        assert again.attempts == []
        assert not again.created


def test_a_stall_that_does_not_end(tmp_path: Path) -> None:
    with target(tmp_path, hub(stall_at="7_000_000_000", stall_over='"any"', timeout="false")) as at:
        seen = fetch(at, attempts=2)
        assert (seen.complete, seen.cause, seen.failed) == (False, "hf-download-stalled", True)
        assert seen.stalls >= 2


def test_a_wrong_body_of_the_right_length(tmp_path: Path) -> None:
    with target(tmp_path, hub(corrupt='["model-00002-of-00005.safetensors"]')) as at:
        seen = fetch(at)
        assert seen.complete
        assert seen.refetched == ["model-00002-of-00005.safetensors"]


def test_always_wrong(tmp_path: Path) -> None:
    with target(tmp_path, hub(corrupt='["model-00002-of-00005.safetensors"]', times="99")) as at:
        seen = fetch(at)
        assert (seen.complete, seen.cause) == (False, "checkpoint-shard-corrupt")
        assert seen.bad == ["model-00002-of-00005.safetensors"]


def test_a_busy_hub(tmp_path: Path) -> None:
    with target(tmp_path, hub(status="429", times="1", retry_after="20")) as at:
        assert fetch(at).complete


def test_refusals(tmp_path: Path) -> None:
    with target(tmp_path, hub(gated='["Qwen/Qwen3-8B"]')) as at:
        assert fetch(at).cause == "hf-auth-missing"
        with pytest.raises(InputError, match="the hub has no"):
            fetch(at, repo="Qwen/no-such-model")
        told: list[str] = []
        args = DownloadModelArgs(
            repo="Qwen/Qwen3-8B", path="/srv/models/m", python="/opt/sglang/bin/python", env={"HF_TOKEN": "hf_x"}
        )
        seen = run(at.host, args, at.ctx("c2", secrets=told.append))
        assert seen.complete
        assert told[0] == "hf_x"
        assert "hf_x" not in seen.model_dump_json()


def test_little_disk_and_no_tool(tmp_path: Path) -> None:
    small = "disk_gib = 40\nused_gib = 10\n" + ENV
    with target(tmp_path, small) as at, pytest.raises(ToolFailed, match="still to come"):
        fetch(at, repo="Qwen/Qwen3.6-27B")
    with target(tmp_path, "") as at, pytest.raises(ToolFailed, match="no `hf`"):
        fetch(at)
