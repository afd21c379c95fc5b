"""What can be changed about a launch, and what each change costs: the vocabulary of advice.

A move changes flags and is ranked by what an operator pays: nothing, cached prefixes, spare memory, speed, quality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsagent_tools.sglang.case import Case, Failed
from opsagent_tools.sglang.plan import Change, Wish
from opsagent_tools.sglang.settings import Settings
from opsagent_tools.sglang.values import Values

SPEC_FLAGS = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_draft_model_path",
)
FRACTIONS = (0.80, 0.82, 0.85, 0.88, 0.90)
RATIOS = (0.3, 2.0)


@dataclass(frozen=True, slots=True)
class Move:
    """One change: values by destination (None removes the flag), its cost, and why it would help."""

    values: Mapping[str, Any] = field(default_factory=dict)
    rank: float = 0.0
    quality: str | None = None
    speed: str | None = None
    risk: str | None = None
    why: str = ""

    @property
    def change(self) -> Change:
        return {flag_of(name): _text(value) for name, value in self.values.items()}


STAY = Move()


def flag_of(name: str) -> str:
    """The option of a destination, in its short form where there is one."""
    short = {"tp_size": "--tp"}
    return short.get(name) or "--" + name.replace("_", "-")


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return "" if value is True else str(value)


def applied(values: Values, moves: Sequence[Move]) -> dict[str, Any]:
    """The values after these moves."""
    new = dict(values)
    for move in moves:
        for name, value in move.values.items():
            if value is None:
                new.pop(name, None)
            else:
                new[name] = value
    return new


def merged(moves: Sequence[Move]) -> Move:
    """Several moves as one: costs add up, reasons are joined."""

    def join(parts: Sequence[str | None]) -> str | None:
        return "; ".join(dict.fromkeys(part for part in parts if part)) or None

    values: dict[str, Any] = {}
    for move in moves:
        values.update(move.values)
    return Move(
        values,
        sum(move.rank for move in moves),
        join([move.quality for move in moves]),
        join([move.speed for move in moves]),
        join([move.risk for move in moves]),
        join([move.why for move in moves]) or "",
    )


def strategy_flag(case: Case) -> str:
    """The flag that picks how state snapshots are kept: renamed after 0.5.11."""
    return "mamba_radix_cache_strategy" if case.rules.extra_buffer_default else "mamba_scheduler_strategy"


def dimensions(case: Case, values: Values, settings: Settings, wish: Wish, keep: frozenset[str]) -> list[list[Move]]:
    """Independent choices; the search tries their product. The first of each is: as it is."""
    spec = case.spec
    choices = [running_moves(values, settings, wish, hybrid=spec.is_hybrid)]
    choices.append(fraction_moves(settings, given="mem_fraction_static" in values))
    if spec.is_hybrid and settings.radix:
        choices.append(split_moves(settings, wish, slots=settings.slots_per_request(case.rules)))
    if settings.spec is not None:
        choices.append([STAY, _without_speculation(case, values)])
    if spec.is_hybrid and settings.radix:
        choices.append([STAY, _without_radix(case, settings)])
    choices.append([STAY, _fp8_kv(case)] if settings.kv_dtype in ("auto", "bfloat16", "bf16") else [STAY])
    if spec.is_hybrid and (settings.ssm_dtype or spec.ssm_dtype) == "float32":
        quality = "recurrent state in bf16: check the accuracy"
        choices.append(
            [STAY, Move({"mamba_ssm_dtype": "bfloat16"}, 7, quality=quality, why="state takes half the memory")]
        )
    if settings.chunked_prefill > 2048:
        speed = "long prompts are read in smaller pieces"
        choices.append(
            [STAY, Move({"chunked_prefill_size": 2048}, 3, speed=speed, why="less memory is kept for prefill")]
        )
    return [[move for move in moves if allowed(move, keep)] for moves in choices]


def allowed(move: Move, keep: frozenset[str]) -> bool:
    """Whether nothing that is to be kept would change."""
    if "precision" in keep and move.quality:
        return False
    if keep & {"speculation", "speculative", "mtp"} and any(name.startswith("speculative") for name in move.values):
        return False
    if keep & {"prefix-cache", "radix"} and "disable_radix_cache" in move.values:
        return False
    return not any(name in keep or flag_of(name).lstrip("-") in keep for name in move.values)


def running_moves(values: Values, settings: Settings, wish: Wish, *, hybrid: bool) -> list[Move]:
    """--max-running-requests: what is wished for and a few multiples; it costs nothing but the requests beyond it."""
    if settings.spec is None and not hybrid and wish.concurrency is None:
        return [STAY]
    least = wish.concurrency or 4
    numbers = sorted({least, 2 * least, 4 * least, 8 * least, 16 * least, 64 * least})
    given = values.get("max_running_requests")
    moves = [STAY]
    for number in numbers:
        if number != given:
            rank = 0.0 if number == least else 0.05
            why = (
                "state is reserved for the requests that you need, not for 48"
                if settings.spec and hybrid
                else "fewer rows are kept"
            )
            moves.append(Move({"max_running_requests": number}, rank, why=why))
    return moves


def fraction_moves(settings: Settings, *, given: bool = False) -> list[Move]:
    """--mem-fraction-static: feeds all pools, from what activations and graphs would have."""
    moves = [STAY]
    for fraction in FRACTIONS:
        if fraction > settings.mem_fraction + 0.004:
            risk = "less memory is spare for graphs, prefill and images"
            moves.append(
                Move(
                    {"mem_fraction_static": fraction},
                    2 + fraction,
                    risk=risk,
                    why="more of the card is given to the pools",
                )
            )
    lower = round(settings.mem_fraction - 0.08, 2)
    if lower > 0.3:
        moves.append(Move({"mem_fraction_static": lower}, 2.5, why="more is left for what comes after the pools"))
    if given:
        moves.append(Move({"mem_fraction_static": None}, 2.6, why="SGLang's own fraction leaves room for graphs"))
    return moves


def split_moves(settings: Settings, wish: Wish, *, slots: int) -> list[Move]:
    """How memory splits between recurrent state (requests) and KV (tokens)."""
    moves = [STAY]
    if settings.mamba_slots is None:
        for ratio in RATIOS:
            why = "more KV, fewer state snapshots" if ratio < 0.9 else "more state slots, fewer tokens"
            moves.append(
                Move(
                    {"mamba_full_memory_ratio": ratio},
                    1,
                    quality=None,
                    speed="fewer cached prefixes" if ratio < 0.9 else None,
                    why=why,
                )
            )
        need = (wish.concurrency or 4) * slots
        speed = "no cached prefixes beyond the running requests"
        moves.append(
            Move({"max_mamba_cache_size": need}, 1.5, speed=speed, why=f"{need} state slots are enough, the rest is KV")
        )
    return moves


def _without_speculation(case: Case, values: Values) -> Move:
    gone: dict[str, Any] = {name: None for name in SPEC_FLAGS if name in values}
    return Move(gone, 6, speed="slower single answers (no draft tokens)", why="no reserve and no draft model")


def _without_radix(case: Case, settings: Settings) -> Move:
    change: dict[str, Any] = {"disable_radix_cache": True}
    if settings.strategy.startswith("extra_buffer"):
        change[strategy_flag(case)] = "no_buffer"
    return Move(
        change, 4, speed="no prefix is reused between requests", why="one state slot a request instead of three to five"
    )


def _fp8_kv(case: Case) -> Move:
    dtype = "fp8_e4m3" if (case.gpu.sm or (9, 0)) >= (8, 9) else "fp8_e5m2"
    return Move(
        {"kv_cache_dtype": dtype}, 7, quality="KV in fp8: check the accuracy", why="a token takes half the memory"
    )


def tp_moves(case: Case, settings: Settings) -> list[Move]:
    """More cards for one model: sizes that divide the heads."""
    moves = [STAY]
    size = settings.tp * 2
    while size * settings.pp <= case.gpu.count:
        if case.spec.heads % size == 0:
            moves.append(Move({"tp_size": size}, 0.01 * size, why=f"weights and pools over {size} cards"))
        size *= 2
    return moves


def repair(case: Case, values: Values, failed: Failed) -> Move | None:
    """The change that answers SGLang's refusal, None when there is none that we know."""
    cause = failed.cause
    if cause == "spec-needs-extra-buffer":
        if case.spec.architecture in case.rules.no_extra_buffer:
            return Move(
                {"disable_radix_cache": True},
                4,
                speed="no prefix is reused between requests",
                why="speculation needs it here",
            )
        return Move({strategy_flag(case): "extra_buffer"}, 0, why="speculation with a prefix cache needs it")
    if cause == "extra-buffer-unsupported":
        if values.get("speculative_algorithm"):
            return Move(
                {strategy_flag(case): "no_buffer", "disable_radix_cache": True}, 4, why="this model has no extra buffer"
            )
        return Move({strategy_flag(case): "no_buffer"}, 0, why="extra_buffer does not go here")
    if cause == "context-length-exceeds-model":
        return Move({"context_length": case.spec.context}, 1, why="the model's own longest context")
    if cause in ("attn-backend-model-unsupported", "attn-backend-gpu-unsupported"):
        names = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
        return Move({name: None for name in names if name in values}, 1, why="SGLang picks a backend that works")
    if cause == "spec-args-incomplete":
        return Move(
            {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
            0,
            why="all three belong together",
        )
    if cause == "quant-flag-mismatch":
        return Move({"quantization": None}, 0, why="the checkpoint says how it is quantised")
    if cause == "hybrid-cache-args-invalid":
        return Move({"page_size": None, "mamba_track_interval": None}, 0, why="the defaults fit together")
    return None
