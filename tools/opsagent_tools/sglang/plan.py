"""The shape of a plan: one object that the command line prints, the tools return and the report cites.

Keys, nesting and units are a contract: GiB are per GPU and mean 2**30 bytes, tokens and requests are whole numbers.
`limits` is null
when the launch fails. Keys may be added, none may change its meaning.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Failure = Literal[
    "weights-oom",
    "kv-pool-negative",
    "kv-pool-oom",
    "max-running-requests-zero",
    "graph-capture-oom",
    "arg-rejected",
    "unknown-architecture",
    "not-enough-gpus",
]
Verdict = Literal["fits", "fails"]
Change = dict[str, str | None]
"""Flags to add or replace; a switch has "" as its value, a removed flag null."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(Strict):
    """What the server will accept, as it logs it."""

    max_total_num_tokens: int
    max_running_requests: int
    context_len: int
    max_prompt_tokens: int | None = None
    """Longest prompt: min(context, tokens) - 6."""
    full_contexts_at_once: int | None = None
    """How many requests of the full context fit at the same time."""


class Intervals(Strict):
    """Where the logged values will lie in nine launches of ten, and what that rests on."""

    max_total_num_tokens: tuple[int, int] | None = None
    max_running_requests: tuple[int, int] | None = None
    basis: str = ""
    edge: str | None = None
    """Set when a count sits on an edge, where one slot more or less moves the tokens by a step."""


class PerGpu(Strict):
    """GiB on the GPU with the least room."""

    free: float
    weights: float
    draft_weights: float = 0.0
    spec_reserve: float = 0.0
    mamba_state: float = 0.0
    mamba_intermediate: float = 0.0
    kv_cache: float = 0.0
    draft_kv: float = 0.0
    pool_end_avail: float = 0.0
    usable: float = 0.0
    """What mem-fraction leaves after the weights, before any reserve."""
    graphs: float = 0.0
    """Estimate: SGLang has no formula for it."""
    other_after_pools: float = 0.0
    """Workspaces between the pools and the graphs."""
    end_avail: float = 0.0
    """Free when the server is ready."""
    parts: dict[str, float] = Field(default_factory=dict)
    """Weights by part: attention, recurrent, mlp, experts, embedding, head, vision …"""


class Asked(Strict):
    flags: list[str]


class Cost(Strict):
    """What a change costs besides memory, in words, and the spare memory that it takes (negative) or gives."""

    quality: str | None = None
    speed: str | None = None
    risk: str | None = None
    spare_gib: float = 0.0
    disk: str | None = None


class Option(Strict):
    """One better set of flags."""

    change: Change
    limits: Limits
    cost: Cost
    meets_wish: bool
    verdict: Verdict = "fits"
    flags: list[str] = Field(default_factory=list)
    interval: tuple[int, int] | None = None
    pool_end_avail: float | None = None
    why: str = ""


class Proposal(Strict):
    """One complete list of flags that meets the wish and that this version accepts."""

    flags: list[str]
    verdict: Verdict = "fits"
    limits: Limits
    interval: tuple[int, int]
    meets_wish: bool
    full_contexts_at_once: int
    change: Change = Field(default_factory=dict)
    why: str = ""
    cost: Cost = Field(default_factory=Cost)
    per_gpu_gib: PerGpu | None = None
    intervals: Intervals = Field(default_factory=Intervals)
    binding_constraint: str = ""
    mem_fraction_static: float | None = None


class Source(Strict):
    term: str
    sglang: str
    where: str


class Balance(Strict):
    """How a hybrid model's memory splits between state and KV, and the ratio at which neither binds first."""

    ratio: float
    balanced_ratio: float
    tokens_per_request: int
    pinned_slots: int
    note: str


class Wish(Strict):
    """What the operator wants: a context length and a number of requests at once."""

    context: int | None = None
    concurrency: int | None = None


class Plan(Strict):
    """A predicted launch. `verdict` is of the flags asked for; `failure` and `cause` say why it fails."""

    verdict: Verdict
    failure: Failure | None = None
    cause: str | None = None
    words: str = ""
    """SGLang's own words of the refusal or failure."""
    fix: str = ""
    """The flag that resolves it, in words."""
    sglang: str
    architecture: str
    model: str = ""
    asked: Asked
    limits: Limits | None = None
    intervals: Intervals = Field(default_factory=Intervals)
    per_gpu_gib: PerGpu | None = None
    mem_fraction_static: float | None = None
    binding_constraint: str = ""
    proposal: Proposal | None = None
    advice: list[Option] = Field(default_factory=list)
    balance: Balance | None = None
    notes: list[str] = Field(default_factory=list)
    """What SGLang will change by itself, and what a user will notice."""
    not_modelled: list[str] = Field(default_factory=list)
    sources: list[Source] = Field(default_factory=list)
    wish: Wish | None = None
    calibration: str = ""
    """What earlier launches on this host taught, in words."""
    corrections: dict[str, float] = Field(default_factory=dict)
    """The same in GiB, by the name of the term in `per_gpu_gib`; already added there."""
    slots: int | None = None
    slots_per_request: int | None = None
    gpus: int = 0
    assessed: int = 0
    """Flag sets that the search for better ones looked at."""
