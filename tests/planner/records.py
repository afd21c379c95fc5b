"""Recorded launches (tests/data/planner): what real servers logged, and what the planner says of the same flags.

`recorded.jsonl`: launches of 0.5.11 on H200 and public logs; `measured.jsonl`: further launches of ours on H200, dummy
weights, other architectures and failures. GiB per GPU, "GB" of SGLang's log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.plan import Plan
from opsagent_tools.sglang.planner import plan

DATA = Path(__file__).parent.parent / "data" / "planner"

UNEXPLAINED = {
    "dsv3": "dummy loading of fp8 converts each tensor through fp16: 14 GiB for a moment, which real weights do not need",
}
"""Records that the planner does not get right, and why; never left out silently."""


@dataclass(frozen=True)
class Record:
    """One launch. `logged` has None for what the log does not show."""

    id: str
    version: str
    model: str
    gpu: GpuFacts
    free_gib: float | None
    emulated: bool
    flags: tuple[str, ...]
    env: dict[str, str]
    logged: dict[str, Any]
    outcome: str
    failure: str | None
    scored: bool

    @property
    def config(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((DATA / "models" / self.model / "config.json").read_text())
        return value


@cache
def records(name: str) -> tuple[Record, ...]:
    """All records of `recorded` or `measured`."""
    found = []
    for line in (DATA / f"{name}.jsonl").read_text().splitlines():
        raw = json.loads(line)
        total = raw["gpu_total_mib"] or round(raw["free_gib_at_load"] * 1024)
        found.append(
            Record(
                id=raw["id"],
                version=raw["sglang_version"],
                model=raw["model_dir"].rpartition("/")[2],
                gpu=GpuFacts(raw["gpu_name"].split(" (")[0], total, raw["n_gpus"]),
                free_gib=raw["free_gib_at_load"],
                emulated=raw["free_gib_emulated"],
                flags=tuple(flag.replace("@MODELS", str(DATA / "models")) for flag in raw["flags"]),
                env={key: str(value) for key, value in (raw.get("env") or {}).items()},
                logged=raw["logged"],
                outcome=raw["outcome"],
                failure=raw["failure"],
                scored=raw["scored"],
            )
        )
    return tuple(found)


def every() -> tuple[Record, ...]:
    return (*records("recorded"), *records("measured"))


def predicted(record: Record, *, total_only: bool = False) -> Plan:
    """The plan of a record; with `total_only` as if its free memory were not known."""
    return plan(
        record.config,
        gpus=record.gpu,
        flags=record.flags,
        sglang="0.5.11",
        env=record.env,
        free_gib=None if total_only else record.free_gib,
        draft_config=_draft(record.flags),
        advise=False,
    )


def _draft(flags: tuple[str, ...]) -> dict[str, Any] | None:
    for at, flag in enumerate(flags):
        if flag == "--speculative-draft-model-path":
            value: dict[str, Any] = json.loads((Path(flags[at + 1]) / "config.json").read_text())
            return value
    return None
