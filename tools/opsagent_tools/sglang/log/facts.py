"""Facts of a log: version, arguments, phases and how long they took, every memory line, the limits that were reached."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from opsagent_tools.sglang.log.events import Event, events
from opsagent_tools.sglang.log.lines import Source
from opsagent_tools.sglang.log.server_args import implied_version, parse_server_args, stated_version

PHASES = ("arguments", "processes", "distributed", "weights", "pools", "backends", "graphs", "warm-up", "serving")
"""Order of a start; a draft model goes back from graphs to weights once (up to 0.5.11)."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Phase(_Model):
    """A stretch of the start of one rank. `started_s` counts from the first time in the log; null without times."""

    name: str
    line: int
    rank: str = ""
    started_s: float | None = None
    duration_s: float | None = None


class MemoryLine(_Model):
    """One memory figure as logged, GiB (SGLang prints GiB as "GB")."""

    line: int
    rank: str
    at: str
    avail_gib: float | None = None
    used_gib: float | None = None


class Limits(_Model):
    """What the server can do, from its summary line."""

    max_total_num_tokens: int | None = None
    max_running_requests: int | None = None
    context_len: int | None = None
    chunked_prefill_size: int | None = None
    max_prefill_tokens: int | None = None
    available_gpu_mem_gib: float | None = None


class Facts(_Model):
    """Everything read from one server start."""

    sglang: str | None = None
    sglang_inferred: bool = False
    """True when the version was concluded from the fields of the arguments line, not stated."""
    args: dict[str, Any] = Field(default_factory=dict)
    model_class: str | None = None
    phases: list[Phase] = Field(default_factory=list)
    memory: list[MemoryLine] = Field(default_factory=list)
    limits: Limits = Field(default_factory=Limits)
    pool_tokens: int | None = None
    mamba_slots: int | None = None
    request_cap_reset: int | None = None
    """The cap that speculation set because none was asked for (48)."""
    ready_line: int | None = None
    listening_line: int | None = None
    requests_ok: int = 0
    accept_len: float | None = None
    lines: int = 0

    @property
    def phase(self) -> str:
        return self.phases[-1].name if self.phases else "arguments"

    @property
    def speculative(self) -> bool:
        return bool(self.args.get("speculative_algorithm")) or self.request_cap_reset is not None

    @property
    def hybrid(self) -> bool:
        return self.mamba_slots is not None or bool(
            re.search(
                r"Qwen3(?:Next|_5|_6)|Mamba|NemotronH|FalconH1|Jamba|KimiLinear|Lfm2|Granite.*Hybrid",
                self.model_class or "",
            )
        )

    def avail(self, at: str) -> float | None:
        """The least free memory of any rank at a named moment, GiB; the first such moment: a draft model comes later."""
        first: dict[str, float] = {}
        for seen in self.memory:
            if seen.at == at and seen.avail_gib is not None:
                first.setdefault(seen.rank, seen.avail_gib)
        return min(first.values(), default=None)


_MEM = re.compile(r"avail(?:able)?[ _]mem(?:ory)?=\s*([\d.]+)")
_USED = re.compile(r"mem usage=\s*([\d.]+)")
_LIMIT = re.compile(
    r"\b(max_total_num_tokens|max_running_requests|context_len|chunked_prefill_size|max_prefill_tokens)=(-?\d+)"
)
_STEPS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.I), phase, at)
    for pattern, phase, at in (
        # marker in the log, the phase that begins with it, name of the memory figure
        (r"server_args=ServerArgs\(", "processes", ""),
        (r"Init torch distributed begin", "distributed", ""),
        (r"Init torch distributed ends", "distributed", "distributed end"),
        (r"Load weight begin", "weights", "weights begin"),
        (r"Load weight end", "pools", "weights end"),
        (r"Memory pool end", "backends", "pools end"),
        (r"Capture .*graph begin", "graphs", "graphs begin"),
        (r"Capture .*graph end", "graphs", "graphs end"),
        (r"max_total_num_tokens=\d+, .*context_len=", "warm-up", ""),
        (r"Uvicorn running on", "warm-up", ""),
        (r"fired up and ready to roll", "serving", ""),
    )
)
_LOADING = re.compile(
    r"(?:Loading|Multi-thread loading) (?:safetensors|pt|shards|weights)[^\n]{0,60}?\d+%|checkpoint shards:"
)
ANCHORS = (
    "server_args=", "torch distributed", "load weight", "memory pool end", "graph begin", "graph end",
    "max_total_num_tokens=",
    "uvicorn running", "fired up", "checkpoint shards", "loading shards", "is reset to", "cache is allocated", "sglang==",
    "accept len", "shards:",
)  # fmt: skip
"""Lower-case words of which a line has one if it states a fact."""


class FactsReader:
    """Fed with the events of one launch in order; `facts` is what is known so far."""

    def __init__(self) -> None:
        self.facts = Facts()
        self._first: float | None = None
        self._phase_at: float | None = None

    def feed(self, event: Event) -> None:
        facts, text, time = self.facts, event.text, event.head.time
        facts.lines = max(facts.lines, event.line)
        if time is not None and self._first is None:
            self._first = time
        for pattern, phase, at in _STEPS:
            if pattern.search(text):
                self._enter(phase, event)
                if at:
                    self._memory(event, at)
                break
        else:
            if _LOADING.search(text) and facts.phase != "weights":
                self._enter("weights", event)
        for reader in _READERS:
            reader(facts, event)

    def _enter(self, phase: str, event: Event) -> None:
        phases, time = self.facts.phases, event.head.time
        if phases and phases[-1].name == phase:
            return
        if phases and event.head.rank and phases[-1].rank and event.head.rank != phases[-1].rank:
            # Ranks pass the same marker one after the other; a rank behind must not look like a step back.
            if PHASES.index(phase) <= PHASES.index(phases[-1].name) and phase != "weights":
                return
            if any(p.name == phase and p.line > phases[-1].line - 40 for p in phases):
                return
        if phases and time is not None and self._phase_at is not None:
            phases[-1].duration_s = round(time - self._phase_at, 3)
        self._phase_at = time
        started = None if time is None or self._first is None else time - self._first
        phases.append(Phase(name=phase, line=event.line, rank=event.head.rank, started_s=started))

    def _memory(self, event: Event, at: str) -> None:
        avail, used = _MEM.search(event.text), _USED.search(event.text)
        if (avail or used) and len(self.facts.memory) < 512:
            figure = MemoryLine(line=event.line, rank=event.head.rank, at=at)
            figure.avail_gib = float(avail[1].rstrip(".")) if avail else None
            figure.used_gib = float(used[1].rstrip(".")) if used else None
            self.facts.memory.append(figure)


def _arguments(facts: Facts, event: Event) -> None:
    if "ServerArgs(" in event.text:
        facts.args = parse_server_args(event.text)
        if facts.sglang is None and (version := implied_version(event.text)):
            facts.sglang, facts.sglang_inferred = version, True
    if "sglang" in event.text and (version := stated_version(event.text)):
        facts.sglang, facts.sglang_inferred = version, False


def _sizes(facts: Facts, event: Event) -> None:
    text = event.text
    if (found := re.search(r"Load weight end\..*?type=(\w+)", text)) and facts.model_class is None:
        facts.model_class = found[1]
    if (found := re.search(r"#tokens: (\d+)", text)) and facts.pool_tokens is None:
        facts.pool_tokens = int(found[1])
    if (found := re.search(r"max_mamba_cache_size: (\d+)", text)) and facts.mamba_slots is None:
        facts.mamba_slots = int(found[1])
    if found := re.search(r"running requests is reset to (\d+)", text, re.I):
        facts.request_cap_reset = int(found[1])


def _summary(facts: Facts, event: Event) -> None:
    if "max_total_num_tokens=" in event.text:
        for name, value in _LIMIT.findall(event.text):
            setattr(facts.limits, name, int(value))
        if found := re.search(r"available_gpu_mem=([\d.]+)", event.text):
            facts.limits.available_gpu_mem_gib = float(found[1])


def _serving(facts: Facts, event: Event) -> None:
    if facts.ready_line is None and "fired up and ready" in event.text:
        facts.ready_line = event.line
    if facts.listening_line is None and "Uvicorn running on" in event.text:
        facts.listening_line = event.line
    if found := re.search(r"accept len: ([\d.]+)", event.text):
        facts.accept_len = float(found[1])


_READERS: tuple[Callable[[Facts, Event], None], ...] = (_arguments, _sizes, _summary, _serving)


def facts(source: Source | Iterable[str]) -> Facts:
    """Facts of the last server start in `source` (a whole log as bytes, its chunks, or its lines)."""
    readers: dict[int, FactsReader] = {}
    last = 0
    for event in events(source, wanted=lambda lowered: any(a in lowered for a in ANCHORS)):
        readers.setdefault(event.launch, FactsReader()).feed(event)
        last = event.launch
    return readers[last].facts if readers else Facts()
