"""The status report: one object, from which terminal, Markdown, HTML and JSON are rendered.

Every limit, behaviour, probe and incident cites the events (`e212`) that prove it; `opsagent verify` follows them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Status = Literal[
    "verified", "failed", "invalid", "transient", "waiting-approval", "budget", "denied", "unknown-outcome",
    "model-unusable", "replay-mismatch", "interrupted",
]  # fmt: skip
STATUS_BY_CODE: dict[int, Status] = {
    0: "verified", 1: "failed", 2: "invalid", 3: "transient", 4: "waiting-approval", 5: "budget", 6: "denied",
    7: "unknown-outcome", 8: "model-unusable", 9: "replay-mismatch", 130: "interrupted",
}  # fmt: skip


class Part(BaseModel):
    """Base of the report's parts: closed, so that a typo is an error and not a missing line."""

    model_config = ConfigDict(extra="forbid")


class Claim(Part):
    """Something that is said, and the events that prove it."""

    text: str
    evidence: list[str] = []


class Endpoint(Part):
    url: str
    """Base URL of the OpenAI-compatible API, ends in /v1."""
    model_id: str
    api_key: str = "none"
    """`none`, `required` or `unknown`; never the key."""
    bind: str = ""


class Deployment(Part):
    host: str
    model: str
    dtype: str = ""
    tp: int = 1
    gpus: list[str] = []
    sglang: str = ""
    speculation: str = ""
    """`NEXTN 1/1/2` (steps/topk/draft tokens) or ''."""
    unit: str = ""
    argv: list[str] = []
    env: dict[str, str] = {}
    log: str = ""
    started_by: str = "this run"


class Limit(Part):
    name: str
    value: float | int
    predicted: float | int | None = None
    interval: list[float] | None = None
    bound_by: str = ""
    evidence: list[str] = []


class Line(Part):
    """One line of predicted against logged, GiB per GPU."""

    name: str
    predicted: float | None = None
    logged: float | None = None
    evidence: list[str] = []


class TradeOff(Part):
    to_get: str
    change: dict[str, str | None]
    limits: dict[str, int | float | None]
    costs: str
    evidence: list[str] = []


class Probe(Part):
    probe: str
    ok: bool | None
    """None: not asked, or it does not apply."""
    detail: str = ""
    evidence: list[str] = []


class Noise(Part):
    text: str
    why_harmless: str
    evidence: list[str] = []


class Incident(Part):
    cause: str
    what: str = ""
    found_by: str = ""
    """`planner`, `preflight`, `launch`, `check` …: the earlier, the cheaper."""
    weight_loads_lost: int = 0
    remedy: dict[str, Any] = {}
    resolved: bool = True
    evidence: list[str] = []


class Change(Part):
    host: str
    what: str
    before: str = ""
    after: str = ""
    evidence: list[str] = []


class Segment(Part):
    """A part of a GPU's memory."""

    term: str
    """`weights`, `recurrent_state`, `verification`, `kv_cache`, `pools` (state and KV, where the log does not part them),
    `draft`, `graphs`, `other`, `set_aside` (reserved, and used by nothing) or `free`."""
    gib: float


class GpuBudget(Part):
    """How the memory of one GPU is divided, from what is free before the weights."""

    label: str
    source: Literal["asked", "planned", "logged"]
    """Predicted for the flags as asked, predicted for those that were chosen, or read from the log."""
    whole_gib: float
    segments: list[Segment]
    evidence: list[str] = []


class FrontierPoint(Part):
    """One set of flags and what it gives; `mark` is what the picture and the table call it (`1` is the first trade-off)."""

    mark: str
    kind: Literal["asked", "chosen", "option"]
    max_running_requests: int
    max_total_num_tokens: int
    context_len: int | None = None
    change: dict[str, str | None] = {}
    evidence: list[str] = []


class Usage(Part):
    turns: int = 0
    calls: int = 0
    tokens: dict[str, int | None] = {"in": None, "out": None}
    wall_s: float = 0.0
    working_s: float = 0.0


class StatusReport(Part):
    """What a run hands over. Unknown parts are null or empty; `status` and `exit_code` are always there."""

    status: Status
    simulated: bool
    run: str
    runbook: str
    exit_code: int
    lab: str = ""
    model: str = ""
    """What chose the calls: `autopilot (no LLM)`, or model and base-URL host."""
    headline: str = ""
    endpoint: Endpoint | None = None
    deployment: Deployment | None = None
    limits: list[Limit] = []
    why: list[Claim] = []
    """The limits explained: what would have bound them, and what was done about it."""
    memory: dict[str, float] = {}
    """The planned budget of one GPU in GiB, by term (examples: weights, kv_cache), for the picture."""
    budget: list[GpuBudget] = []
    """Where the memory goes: the flags as asked, those that were chosen, and what each GPU logged."""
    frontier: list[FrontierPoint] = []
    """Requests at once against tokens: as asked, chosen, and the trade-offs."""
    wish: dict[str, int] = {}
    """`context` (tokens) and `concurrency` (requests) that were asked for."""
    predicted_logged: list[Line] = []
    behaviours: list[Claim] = []
    trade_offs: list[TradeOff] = []
    verification: list[Probe] = []
    noise: list[Noise] = []
    incidents: list[Incident] = []
    weight_loads: int = 0
    changes: list[Change] = []
    undo: str = ""
    stop: str = ""
    resume: str = ""
    open: list[str] = []
    failed: Claim | None = None
    """Why it did not end verified, and what it would take."""
    usage: Usage = Usage()
