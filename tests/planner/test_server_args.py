"""What the real ServerArgs of four SGLang versions made of random flag sets, against what the planner says of them.

`server_args.jsonl`: `prepare_server_args` and `check_server_args` of the released wheels, run on a machine without a GPU
with the card of each row pretended (name, memory, compute capability), and only the files of a model that are configuration.
What ServerArgs cannot see (kernels that stop after the load) is not in these rows.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from planner.records import DATA

from opsagent_tools.sglang.arguments import read_arguments
from opsagent_tools.sglang.case import Case, make_case
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.planner import plan
from opsagent_tools.sglang.settings import Settings, resolve

ROWS = [json.loads(line) for line in (DATA / "server_args.jsonl").read_text().splitlines()]


@cache
def _config(model: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((DATA / "models" / model / "config.json").read_text())
    return value


def _gpu(row: dict[str, Any]) -> GpuFacts:
    return GpuFacts(name=row["gpu"], total_mib=row["mib"], count=8)


def _settings(row: dict[str, Any]) -> tuple[Case, Settings]:
    case = make_case(_config(row["model"]), gpus=_gpu(row), sglang=row["sglang"], env={}, free_gib=None)
    values = read_arguments(row["flags"], case).values
    return case, resolve(values, case.spec, case.gpu, case.rules, case.env)


def _name(row: dict[str, Any]) -> str:
    return f"{row['sglang']}-{ROWS.index(row)}-{row['model']}"


@pytest.mark.parametrize("row", [r for r in ROWS if not r["accepted"]], ids=_name)
def test_what_server_args_refuses_is_refused(row: dict[str, Any]) -> None:
    found = plan(_config(row["model"]), gpus=_gpu(row), flags=row["flags"], sglang=row["sglang"], advise=False)
    assert found.failure == "arg-rejected", row["words"]


@pytest.mark.parametrize("row", [r for r in ROWS if r["accepted"]], ids=_name)
def test_what_server_args_resolves_is_resolved(row: dict[str, Any]) -> None:
    found = plan(_config(row["model"]), gpus=_gpu(row), flags=row["flags"], sglang=row["sglang"], advise=False)
    assert found.failure != "arg-rejected", found.words
    (_, ours), real = _settings(row), row["resolved"]
    assert ours.chunked_prefill == real["chunked_prefill_size"]
    assert ours.mem_fraction == pytest.approx(real["mem_fraction_static"], abs=1e-6)
    assert ours.radix is not real["disable_radix_cache"]
    assert ours.overlap is not real["disable_overlap_schedule"]
    assert ours.max_running == real.get("max_running_requests")
    if "speculative_num_draft_tokens" in real:
        assert ours.spec is not None
        assert ours.spec.draft_tokens == real["speculative_num_draft_tokens"]
    assert ours.page_size == real["page_size"]
