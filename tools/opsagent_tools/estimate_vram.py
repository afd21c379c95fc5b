"""The tool `estimate_vram`: predict a launch on this host, and find the flags that meet a wish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field

from opsagent_tools import probes
from opsagent_tools.arg_types import Flags, ModelRef, model_path, option
from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.host import Host
from opsagent_tools.machine.gpus import Gpu, read_gpus
from opsagent_tools.read_config import ReadConfigArgs, config_of
from opsagent_tools.read_config import run as read_model
from opsagent_tools.sglang.calibration import calibration_of
from opsagent_tools.sglang.checkpoint import CheckpointFacts
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.modelspec import architecture_of
from opsagent_tools.sglang.plan import Plan, Wish
from opsagent_tools.sglang.planner import NEWEST, plan
from opsagent_tools.sglang.words import plan_line
from opsagent_tools.tool import Args, Context, Result, Tool

FOREIGN_MIB = 700
"""More than a desktop or a monitor holds: somebody works on that card."""


class EstimateVramArgs(Args):
    model: ModelRef = Field(description="The result of read_config, or the path of a model directory on the host.")
    flags: Flags = Field(
        default=[], description="SGLang's own flags that the operator wishes for, as words or one string."
    )
    keep: list[str] = Field(
        default=[],
        description="What must not change: `speculation`, `precision`, `prefix-cache`, or a flag without dashes.",
    )
    want_context: int | None = Field(default=None, gt=0, description="Context length that is wished for, tokens.")
    want_concurrency: int | None = Field(default=None, gt=0, description="Requests at once that are wished for.")
    sglang: str = Field(
        default="", description="SGLang's version; found through `python` when left out, else the newest modelled."
    )
    python: str = Field(default="", description="The serving environment's interpreter: its SGLang counts.")
    env: dict[str, str] = Field(
        default={}, description="Environment of the server: SGLANG_* variables that change memory."
    )
    gpus: list[int] = Field(default=[], description="Cards to use, by nvidia-smi's number; all if left out.")
    free_gib: float | None = Field(
        default=None, gt=0, description='Free GiB per card at "Load weight begin", when it is known.'
    )
    empty: bool = Field(
        default=False,
        description="Count the cards as empty: for a server that runs on them now and holds their memory.",
    )


class EstimateVramResult(Plan, Result):
    """A plan, and what it rests on."""

    host: str = ""
    gpu: str = ""
    """The cards, in words."""

    @property
    def failed(self) -> bool:
        return self.verdict == "fails" and self.proposal is None


def run(host: Host, args: EstimateVramArgs, ctx: Context | None = None) -> EstimateVramResult:
    """Predict. Raises ToolFailed without usable cards, InputError for a configuration that is not a model's."""
    ctx = ctx or Context()
    config, checkpoint, path = _model(host, args.model, ctx)
    cards = _used(_cards(host, args.gpus), args.flags, args.env)
    facts = gpu_facts(cards)
    if args.empty:
        facts = replace(facts, free_mib=None)
    version = args.sglang or _version(host, args.python) or NEWEST
    want = (
        Wish(context=args.want_context, concurrency=args.want_concurrency)
        if args.want_context or args.want_concurrency
        else None
    )
    found = plan(
        config,
        gpus=facts,
        flags=args.flags,
        sglang=version,
        env=args.env,
        free_gib=args.free_gib,
        want=want,
        keep=args.keep,
        checkpoint=checkpoint,
        draft_config=_draft(host, args.flags),
        calibration=calibration_of(ctx.history.get("planner"), version, architecture_of(config)),
    )
    busy = occupied(cards) if found.verdict == "fails" and found.proposal is None else ""
    other = {"cause": "gpu-memory-occupied", "words": f"{found.words} ({busy})"} if busy else {}
    return EstimateVramResult(
        **{**found.model_dump(), "model": path, **other},
        summary=plan_line(found),
        host=host.name,
        gpu=f"{facts.count}x {facts.name}, {facts.total_mib / 1024:.1f} GiB, {(facts.free_mib or 0) / 1024:.1f} free",
    )


def _model(host: Host, model: ModelRef, ctx: Context) -> tuple[dict[str, Any], CheckpointFacts | None, str]:
    if isinstance(model, str):
        read = read_model(host, ReadConfigArgs(path=model), ctx)
        return read.config, read.checkpoint, model
    config = model.get("config")
    if not isinstance(config, dict):
        raise InputError(
            "the model has no `config`", where="estimate_vram.model", hint="Give the whole result of read_config."
        )
    facts = model.get("checkpoint")
    return config, CheckpointFacts.model_validate(facts) if isinstance(facts, Mapping) else None, model_path(model)


def _cards(host: Host, wanted: Sequence[int]) -> list[Gpu]:
    """The cards that nvidia-smi shows, of those that are wanted."""
    driver, cards = read_gpus(host)
    usable = [card for card in cards if card.index is not None and (not wanted or card.index in wanted)]
    if not usable:
        words = driver.words or "nvidia-smi shows none of the cards that are wanted"
        raise ToolFailed(f"no usable GPU: {words}", where=host.name, hint="Look with inspect_host first.")
    return usable


def _used(cards: list[Gpu], flags: Sequence[str], env: Mapping[str, str]) -> list[Gpu]:
    """The cards that the server would see: after CUDA_VISIBLE_DEVICES, from --base-gpu-id on. All when that leaves none."""
    wish = env.get("CUDA_VISIBLE_DEVICES")
    if wish is not None:
        words = [word.strip() for word in wish.split(",")]
        cards = [card for card in cards if str(card.index) in words or card.uuid in words] or cards
    base = option(list(flags), "--base-gpu-id") or ""
    return cards[int(base) :] or cards if base.isdigit() else cards


def occupied(cards: Sequence[Gpu]) -> str:
    """Who holds memory of a card, when it is so much that it decides ('' otherwise)."""
    for card in cards:
        if (card.memory_used_mib or 0) > FOREIGN_MIB:
            holders = ", ".join(f"{one.name} (pid {one.pid})" for one in card.holders) or "another process"
            return f"GPU {card.index}: {card.memory_used_mib} MiB held by {holders}"
    return ""


def gpu_facts(cards: Sequence[Gpu]) -> GpuFacts:
    """All cards as one kind: the smallest total, the least free memory. InputError for a card without a memory size."""
    totals = [card.memory_total_mib for card in cards]
    if any(not total for total in totals):
        raise InputError("a card says no memory size", where=cards[0].name, hint="nvidia-smi could not read it.")
    free = [card.memory_free_mib for card in cards if card.memory_free_mib is not None]
    first = min(cards, key=lambda card: card.memory_total_mib or 0)
    major, _, minor = (first.compute_capability or "").partition(".")
    capability = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
    least = min(total for total in totals if total)
    return GpuFacts(
        first.name, float(least), len(cards), capability, float(min(free)) if len(free) == len(cards) else None
    )


def _version(host: Host, python: str) -> str:
    """SGLang's version in the environment of `python`, '' when it cannot be told."""
    if not python.startswith("/"):
        return ""
    folder = str(PurePosixPath(python).parent.parent)
    try:
        answer = probes.ask(host, "venvs", {"roots": [folder], "depth": 0}, timeout_s=60)
    except ToolFailed:
        return ""
    return next((str(venv["sglang"]) for venv in answer.get("venvs", []) if venv.get("sglang")), "")


def _draft(host: Host, flags: Sequence[str]) -> dict[str, Any] | None:
    """Configuration of the draft model that the flags name, when it lies on the host."""
    for at, word in enumerate(flags):
        name, equal, value = word.partition("=")
        if name.startswith("--speculative-draft-model-p"):
            path = value if equal else flags[at + 1] if at + 1 < len(flags) else ""
            if path.startswith("/"):
                try:
                    return config_of(probes.ask(host, "model_files", {"path": path, "headers": False}), path)
                except (ToolFailed, InputError):
                    return None
    return None


TOOL = Tool(
    name="estimate_vram",
    description=(
        "Predict a launch before it happens: whether SGLang accepts the flags, what fits, which limits it will log (tokens, "
        "running requests), what binds them. With a wish (want_context, want_concurrency) it searches flags and returns "
        "`proposal`: a complete flag list that meets the wish on these cards, and `advice`: alternatives with their costs. "
        "Uses the cards' free memory."
    ),
    args=EstimateVramArgs,
    result=EstimateVramResult,
    run=run,
    tier="R0",
    recovery="read_only",
)
