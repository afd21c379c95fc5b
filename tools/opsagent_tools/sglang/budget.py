"""The budget of one GPU, as the formula reads: free → weights → reserve → state and KV → pools → draft → graphs.

    rest   = (free − weights − rope growth) − free · (1 − fraction)
    rest  −= state · requests · draft tokens                       hybrid with speculation
    slots  = rest · r / (1 + r) / state                             hybrid, or given
    tokens = (rest − slots · state) / bytes per token, whole pages
    running = min(asked or a bound from tokens, slots / slots per request)

Source: model_executor/model_runner_kv_cache_mixin.py:56 and :698 of 0.5.11; what other versions do differently is data in
`arithmetic.py`. Bytes throughout, GiB = 2**30; SGLang prints GiB as "GB".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsagent_tools.errors import InputError
from opsagent_tools.sglang.allocator import GIB, OWN_SEGMENT, ROUND, segment
from opsagent_tools.sglang.arithmetic import Arithmetic
from opsagent_tools.sglang.kv import KvPrice, kv_price
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.settings import Settings
from opsagent_tools.sglang.state import StateSize
from opsagent_tools.sglang.weights import FLOAT32, pipeline_range

STREAM_POOL = int(0.0684 * GIB)
"""PyTorch's stream pool, created between the measurement of free memory and "Load weight begin" on a single GPU
(measured on H200,
PyTorch 2.11); with more ranks it exists before."""
ROUNDING_DOUBT = 0.007 * GIB
"""Logged GiB have two decimals: so far may the tokens be off for that alone."""
ROPE_MARGIN, ROPE_ALIGN, ROPE_SAFETY = 256, 128, 2


@dataclass(frozen=True, slots=True)
class Budget:
    """One GPU's memory at launch, in bytes, and the limits that follow."""

    free: int
    """At "Load weight begin"."""
    weights: int
    draft_weights: int
    rope_growth: int
    usable: int
    """What the fraction leaves after the weights (SGLang's rest_memory, before any reserve)."""
    spec_reserve: int
    slots: int
    slots_per_request: int
    state: StateSize | None
    state_bytes: int
    intermediate_bytes: int
    tokens: int
    swa_tokens: int
    running: int
    context: int
    price: KvPrice
    kv_bytes: int
    draft_kv_bytes: int
    pool_end: int
    """Free after "Memory pool end" of the target."""
    bound_by: str
    """What sets the running requests: `asked`, `slots`, `tokens` or `ceiling`."""

    @property
    def max_prompt(self) -> int:
        """Longest prompt that is accepted (managers/tp_worker.py: max_req_input_len)."""
        return max(0, min(self.context, self.tokens) - 1 - 5)


def rope_growth(spec: ModelSpec, settings: Settings, tables: Sequence[tuple[int, int]]) -> int:
    """Bytes that tables of cosines take when they are regrown for the context (utils/common.py:3915); `tables` are
    (rows, width).
    """
    speculative = settings.spec.steps * settings.spec.draft_tokens * ROPE_SAFETY if settings.spec else 0
    need = -(-(settings.context + speculative + ROPE_MARGIN) // ROPE_ALIGN) * ROPE_ALIGN
    lost = 0
    for rows, width in tables:
        if need > rows:
            old = rows * width * FLOAT32
            lost += segment(need * width * FLOAT32) - (segment(old) if old >= OWN_SEGMENT else 0)
    return max(0, lost)


def rope_tables(spec: ModelSpec, *, language_only: bool) -> list[tuple[int, int]]:
    """(rows, float32 columns) of the tables that SGLang regrows: the text model's, and the vision tower's."""
    tables = []
    if spec.rotary_dim > 0 and spec.count("full", "swa", "both"):
        tables.extend([(spec.rope_rows, spec.rotary_dim)] * spec.rope_tables)
    if spec.vision is not None and spec.vision.rope_rows and not language_only:
        tables.append((spec.vision.rope_rows, spec.vision.hidden // spec.vision.heads // 2))
    return tables


def make_budget(
    spec: ModelSpec,
    settings: Settings,
    rules: Arithmetic,
    *,
    free: int,
    weights: int,
    draft_weights: int,
    draft_cell: float,
    draft_layers: int,
    state: StateSize | None,
    stream_pool: int = STREAM_POOL,
    extra_loss: int = 0,
) -> Budget:
    """Limits and sizes on the GPU with the least room. `free` is what "Load weight begin" shows, in bytes.

    `draft_cell` is the KV price of a token in the draft model and `extra_loss` a correction learned from earlier launches.
    """
    pre = free + (stream_pool if settings.tp * settings.pp == 1 else 0)
    growth = (
        rope_growth(spec, settings, rope_tables(spec, language_only=settings.language_only)) if rules.rope_growth else 0
    )
    post = free - weights - growth - extra_loss - (draft_weights if rules.draft_first else 0)
    usable = int(post - pre * (1 - settings.mem_fraction)) - rules.vlm_cache_mib * (1 << 20) * (spec.vision is not None)
    rest, reserve, slots = usable, 0, 0
    per_request = settings.slots_per_request(rules) if state is not None else 0
    if state is not None:
        rest, reserve, slots = split_state(settings, rules, usable, state.per_request, per_request)
    tokens, swa_tokens, price = tokens_of(spec, settings, rules, rest, draft_cell)
    running, bound_by = running_requests(settings, rules, tokens, slots, per_request, hybrid=state is not None)
    state_bytes, intermediate = state_pools(settings, state, max(slots, 0), max(running, 0))
    kv = _pool_bytes(price, tokens, swa_tokens, settings.page_size)
    beside = _beside_pools(settings, rules, running, tokens, swa_tokens)
    pool_end = free - weights - growth - extra_loss - state_bytes - intermediate - kv - beside
    if rules.draft_first:
        pool_end -= draft_weights
    return Budget(
        free=free, weights=weights, draft_weights=draft_weights, rope_growth=growth, usable=usable, spec_reserve=reserve,
        slots=slots, slots_per_request=per_request, state=state, state_bytes=state_bytes, intermediate_bytes=intermediate,
        tokens=tokens, swa_tokens=swa_tokens, running=running, context=settings.context, price=price, kv_bytes=kv,
        draft_kv_bytes=int(draft_cell * (max(tokens, 0) + settings.page_size)) if draft_layers else 0,
        pool_end=pool_end, bound_by=bound_by,
    )  # fmt: skip


def _beside_pools(settings: Settings, rules: Arithmetic, running: int, tokens: int, swa_tokens: int) -> int:
    """Bytes of the tables beside the pools: where each request's tokens are, and the lists of free pages."""
    drafts = settings.spec.draft_tokens if settings.spec else 0
    rows = (max(running, 0) + rules.extra_row) * (settings.context + 4 + drafts) * 4
    lists = 8 * (max(tokens, 0) + max(swa_tokens, 0)) // settings.page_size + (8 * max(tokens, 0) if swa_tokens else 0)
    return _rounded(rows) + _rounded(lists)


def split_state(
    settings: Settings, rules: Arithmetic, usable: int, state: int, per_request: int
) -> tuple[int, int, int]:
    """(rest for KV, reserve for verification, slots) of a hybrid model: `handle_max_mamba_cache`."""
    if state <= 0:
        raise InputError(
            "the recurrent state has no size", where="config.json", hint="Compare it with the one on the hub."
        )
    tokens = settings.spec.draft_tokens if settings.spec else 0
    asked = (settings.max_running or 0) // settings.dp
    if rules.joint_state:
        return _joint(settings, usable, state, per_request, asked, tokens)
    reserve = state * asked * tokens if settings.spec else 0
    rest = usable - reserve
    if settings.mamba_slots is not None:
        slots = settings.mamba_slots // settings.dp
    elif not settings.radix and settings.max_running is not None:
        slots = asked
    else:
        slots = int(rest * settings.mamba_ratio / (1 + settings.mamba_ratio) // state)
    return rest - slots * state, reserve, slots


def _joint(
    settings: Settings, usable: int, state: int, per_request: int, asked: int, tokens: int
) -> tuple[int, int, int]:
    """0.5.23: slots and verification states solved together (mem_cache/kv_cache_configurator.py:3229)."""
    share = usable * settings.mamba_ratio / (1 + settings.mamba_ratio)
    if settings.mamba_slots is not None:
        slots = settings.mamba_slots // settings.dp
    elif not settings.radix and settings.max_running is not None:
        slots = asked
    elif tokens:
        slots = int((share - state * (1 + tokens)) // (state * (1 + tokens / per_request)))
    else:
        slots = int((share - state) // state)
    held = min(asked, slots // per_request) if settings.radix else slots
    reserve = state * (max(held, 0) + 1) * tokens
    return usable - reserve - (slots + 1) * state, reserve, slots


def tokens_of(
    spec: ModelSpec, settings: Settings, rules: Arithmetic, rest: int, draft_cell: float
) -> tuple[int, int, KvPrice]:
    """Tokens of the pool, of its sliding-window part, and the price on the stage that has the least."""
    best: tuple[int, int, KvPrice] | None = None
    page = settings.page_size
    for rank in range(settings.pp):
        price = kv_price(spec, settings, pipeline_range(len(spec.layers), rank, settings.pp))
        if price.cell <= 0:
            continue
        cell = price.cell + (draft_cell if rules.draft_first else 0)
        tokens = int(rest // cell) // page * page
        if best is None or tokens < best[0]:
            best = (tokens, 0, price)
    if best is None:
        price = KvPrice(1.0, ())
        best = (max(rest, 0), 0, price)
    tokens, _, price = best
    if settings.max_tokens is not None and tokens > 0:
        tokens = min(tokens, settings.max_tokens) // page * page
    swa = 0
    if price.swa_layers:
        swa = int(tokens * price.swa_ratio) // page * page
    return tokens, swa, price


def running_requests(
    settings: Settings, rules: Arithmetic, tokens: int, slots: int, per_request: int, *, hybrid: bool
) -> tuple[int, str]:
    """Requests that run at once in one data parallel group, and what sets the number (`_resolve_max_num_reqs`)."""
    estimate = max(min(int(tokens / settings.context * 512), 4096), 2048)
    if settings.max_running is not None and rules.half_pool_cap_given:
        running, bound = max(1, settings.max_running // settings.dp), "asked"
        if tokens // 2 < running:
            running, bound = tokens // 2, "tokens"
    elif settings.max_running is not None:
        running, bound = min(settings.max_running // settings.dp, estimate), "asked"
    else:
        running, bound = estimate, "ceiling"
        if rules.half_pool_cap and tokens // 2 < running:
            running, bound = tokens // 2, "tokens"
    if hybrid and slots // per_request < running:
        running, bound = slots // per_request, "slots"
    return running, bound


def state_pools(settings: Settings, state: StateSize | None, slots: int, running: int) -> tuple[int, int]:
    """Bytes of the state pool and of the verification buffers, which use the final number of requests."""
    if state is None:
        return 0, 0
    pools = [state.conv * state.layers * (slots + 1), state.ssm * state.layers * (slots + 1)]
    tokens = settings.spec.draft_tokens if settings.spec else 0
    verify = [size * state.layers * (running + 1) * tokens for size in (state.conv, state.ssm)]
    return sum(map(_rounded, pools)), sum(map(_rounded, verify))


def _pool_bytes(price: KvPrice, tokens: int, swa_tokens: int, page: int) -> int:
    """Bytes of the KV buffers; where a few tokens decide about a step of 2 MiB in every buffer, the middle of the step."""
    if tokens <= 0:
        return 0
    few = int(ROUNDING_DOUBT / max(price.cell, 1.0))
    sizes = [
        price.pool_bytes(max(tokens + d, 0), max(int(swa_tokens + d * price.swa_ratio), 0), page) for d in (-few, few)
    ]
    return sum(sizes) // 2


def _rounded(size: int) -> int:
    """One buffer as the driver sees it: large ones round up to 2 MiB, small ones share segments."""
    return -(-size // ROUND) * ROUND if size >= OWN_SEGMENT else size
