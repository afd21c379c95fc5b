"""`opsagent plan`: exit codes, one JSON object, clear messages."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from planner.records import DATA

from opsagent.cli import cli

STORY = DATA / "models" / "qwen3.6-27b"
CARD = ("--gpu", "RTX A6000:49140", "--num-gpus", "2")


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *words], standalone_mode=False)


def answer(*words: str) -> tuple[Any, dict[str, Any]]:
    result = call("--json", *words)
    return result.return_value, json.loads(result.stdout)


def test_fits_is_0_and_has_the_keys_of_the_contract() -> None:
    code, plan = answer("--model", str(STORY), *CARD, "--free-gib", "46.8", "--sglang", "0.5.11", "--", "--tp", "2")
    assert code == 0
    keys = {
        "verdict", "failure", "cause", "sglang", "architecture", "asked", "limits", "intervals", "per_gpu_gib",
        "mem_fraction_static", "binding_constraint", "proposal", "advice", "not_modelled", "sources",
    }  # fmt: skip
    assert keys <= plan.keys()
    assert plan["asked"] == {"flags": ["--tp", "2"]}
    limits = {"max_total_num_tokens", "max_running_requests", "context_len", "max_prompt_tokens"}
    assert limits <= plan["limits"].keys()
    assert (
        plan["limits"]["max_prompt_tokens"]
        == min(plan["limits"]["context_len"], plan["limits"]["max_total_num_tokens"]) - 6
    )
    sizes = {
        "free", "weights", "draft_weights", "spec_reserve", "mamba_state", "mamba_intermediate", "kv_cache", "draft_kv",
        "pool_end_avail",
    }  # fmt: skip
    assert sizes <= plan["per_gpu_gib"].keys()
    assert {"flags", "verdict", "limits", "interval", "meets_wish", "full_contexts_at_once"} <= plan["proposal"].keys()


def test_fails_is_1() -> None:
    code, plan = answer("--model", str(STORY), "--gpu", "RTX 4090:24564", "--sglang", "0.5.11")
    assert (code, plan["verdict"], plan["failure"], plan["limits"]) == (1, "fails", "weights-oom", None)
    code, plan = answer("--model", str(STORY), *CARD, "--sglang", "0.5.11", "--", "--tp", "4")
    assert (code, plan["failure"]) == (1, "not-enough-gpus")
    code, plan = answer("--model", str(DATA / "models" / "unknown-arch"), *CARD, "--sglang", "0.5.11")
    assert (code, plan["failure"]) == (1, "unknown-architecture")
    assert plan["proposal"] is None


@pytest.mark.parametrize(
    "words",
    [
        ["--gpu", "x:1000"],
        ["--model", "/nowhere", "--gpu", "x:1000"],
        ["--model", str(STORY)],
        ["--model", str(STORY), "--gpu", "RTX A6000"],
        ["--model", str(STORY), "--gpu", "RTX A6000:none"],
        ["--model", str(STORY), "--gpu", "RTX A6000:49140", "--num-gpus", "two"],
        ["--model", str(STORY), "--gpu", "RTX A6000:49140", "--free-gib", "0"],
        ["--model", str(STORY), "--gpu", "RTX A6000:49140", "--free-gib", "480"],
        ["--model", str(STORY), "--gpu", "RTX A6000:49140", "--want-context", "1.5"],
    ],
)
def test_unreadable_is_2_with_one_error(words: list[str]) -> None:
    code, error = answer(*words)
    assert code == 2
    assert error.keys() == {"error"}
    assert error["error"]["what"]
    assert error["error"]["hint"]


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"architectures": ["X"]}', '{"architectures": [], "hidden_size": 8}', "null"]
)
def test_broken_configuration_is_2(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    code, error = answer("--model", str(tmp_path), *CARD)
    assert code == 2
    assert "config.json" in error["error"]["where"] + error["error"]["what"]


def test_newest_version_is_the_default_and_said() -> None:
    _code, plan = answer("--model", str(DATA / "models" / "qwen3-8b"), "--gpu", "NVIDIA H200:143771")
    assert plan["sglang"] == "0.5.23"
    _code, plan = answer(
        "--model", str(DATA / "models" / "qwen3-8b"), "--gpu", "NVIDIA H200:143771", "--sglang", "0.5.14"
    )
    assert any("0.5.14 is not modelled" in gap for gap in plan["not_modelled"])


def test_table_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "frontier.svg"
    result = call("--model", str(STORY), *CARD, "--sglang", "0.5.11", "--svg", str(picture), "--want-context", "32768",
                  "--want-concurrency", "4", "--", "--tp", "2")  # fmt: skip
    assert result.return_value == 0
    assert re.search(r"starts · \d+ requests", result.stdout)
    svg = picture.read_text()
    assert svg.startswith("<svg")
    assert len(ElementTree.fromstring(svg).findall(".//{*}path")) >= 2
    assert "var(" not in svg, "a file of its own has no page to take colours from"


def test_environment_moves_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--model", str(STORY), *CARD, "--free-gib", "46.8", "--sglang", "0.5.11", "--", "--tp", "2")
    _code, before = answer(*words)
    monkeypatch.setenv("SGLANG_MAMBA_SSM_DTYPE", "bfloat16")
    _code, after = answer(*words)
    assert after["limits"]["max_running_requests"] > 1.5 * before["limits"]["max_running_requests"]
