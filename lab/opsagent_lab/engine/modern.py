"""The order of 0.5.23: weights of target and draft, then all pools, then attention backends, then all graphs.

Sources: managers/scheduler.py:1128, mem_cache/kv_cache_configurator.py, model_runner_components/cuda_graph_setup.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from opsagent_lab.engine import budget, defaults, loading, memory, tensors
from opsagent_lab.engine.card import GIB
from opsagent_lab.engine.faults import Fault, kernel_trouble
from opsagent_lab.engine.launch import Event, Launch, Limits, Say, Trouble, Wait
from opsagent_lab.engine.loading import Loaded, everywhere, first, holds, rank_of
from opsagent_lab.engine.memory import DoesNotFit


def schedulers(launch: Launch) -> Generator[Event, None, Limits]:
    """From the spawned processes' first line to the summary line."""
    state = yield from loading.connect(launch)
    yield from loading.load(launch, state)
    if launch.settings.spec:
        yield from _draft_weights(launch, state)
    yield from _pools(launch, state)
    yield from loading.backends(launch, state)
    if launch.settings.graphs:
        yield from _graphs(launch, state)
    yield from loading.scheduler_tokenizer(launch)
    yield from loading.summary(launch, state)
    return loading.limits(launch, state)


def _draft_weights(launch: Launch, state: Loaded) -> Iterator[Event]:
    ranks = state.ranks
    for r in launch.ranks:
        yield Say(f"Load weight begin. avail mem={ranks.cards[r].free_gib:.2f} GB", rank_of(launch, r))
    before = [card.free for card in ranks.cards]
    try:
        ranks.allocate(lambda: loading.draft_tensors(launch))
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "draft-oom", "oom-weight-load")) from problem
    yield Wait(0.01 if launch.dummy else 1.4, "draft")
    for r in launch.ranks:
        lost = before[r] - ranks.cards[r].free
        yield Say(
            loading.load_end(launch, 1.4, launch.shape.draft_class, ranks.cards[r].free, lost), rank_of(launch, r)
        )
    yield from holds(ranks)


def _pools(launch: Launch, state: Loaded) -> Iterator[Event]:
    s, shape, ranks = launch.settings, launch.shape, state.ranks
    try:
        z = state.sizing = ranks.size()
    except budget.NoRoom as problem:
        kind = "ValueError" if problem.detail.startswith("Loaded weights") else "RuntimeError"
        raise Fault(Trouble("pool", kind, problem.detail, "kv-pool-no-room")) from problem
    if z.requests == 0:
        raise Fault(Trouble("pool", "RuntimeError", _too_small(launch, z), "hybrid-spec-state-reserve"))
    asked = s.max_running
    if z.slots is not None and asked is not None and z.requests < asked:
        yield first(
            launch,
            f"max_running_requests is capped to {z.requests} by the mamba state cache (max_mamba_cache_size={z.slots}, "
            f"{budget.slots_per_request(s)} state slots per request). To raise it: increase --mamba-full-memory-ratio or "
            "--max-mamba-cache-size, or halve the state size with --mamba-ssm-dtype bfloat16.",
        )
    try:
        ranks.pools(z)
        if s.spec:
            ranks.draft_pool(z)
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "pool-oom", "oom-pool-alloc")) from problem
    if z.state is not None:
        yield from everywhere(launch, loading.mamba_line(launch, z))
    yield from everywhere(launch, _kv_line(launch, z.tokens, shape.attention_layers))
    if s.spec and shape.draft_layers:
        yield from everywhere(launch, "draft " + _kv_line(launch, z.tokens, shape.draft_layers))
        ranks.give(tensors.draft_shared(shape, s.tp))
    for r in launch.ranks:
        yield Say(f"Memory pool end. avail mem={ranks.cards[r].free_gib:.2f} GB", rank_of(launch, r))
    yield from holds(ranks)


def _too_small(launch: Launch, z: budget.Sizing) -> str:
    return (
        "Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        f"max_mamba_cache_size={z.slots}, mamba_ratio={budget.slots_per_request(launch.settings)}, "
        f"resulting max_num_reqs={z.requests}. Try: (1) reduce --max-running-requests, "
        "(2) increase --mem-fraction-static, or (3) use GPUs with more memory."
    )


def _kv_line(launch: Launch, tokens: int, layers: int) -> str:
    half = memory.kv_half(launch.shape, launch.settings, tokens, layers) / GIB
    return (
        f"KV Cache is allocated. dtype: {loading.kv_dtype_name(launch)}, #tokens: {tokens}, K size: {half:.2f} GB, "
        f"V size: {half:.2f} GB"
    )


def _graphs(launch: Launch, state: Loaded) -> Iterator[Event]:
    s, z = launch.settings, state.sizing
    assert z is not None
    trouble = kernel_trouble(launch, at="graphs")
    if trouble:
        raise Fault(trouble)
    if s.piecewise:
        sizes = defaults.piecewise_sizes(s.chunked)
        head = f"backend=breakable, num_tokens={sizes}"
        yield from _capture(launch, state, "target prefill", head, "", round(0.004 * len(sizes) * GIB))
    sizes = defaults.captured(defaults.graph_sizes(s.graph_max_bs, spec=s.spec is not None), z.requests)
    head = f"backend=full, num_tokens_per_req={max(1, s.spec_tokens)}"
    for i, name in enumerate(["target decode"] + (["draft decode", "draft extend"] if s.spec else [])):
        size = memory.graph_bytes(launch, sizes) if i == 0 else memory.draft_graph_bytes(sizes)
        yield from _capture(launch, state, name, head, f"bs={sizes}, ", size)


def _capture(launch: Launch, state: Loaded, name: str, head: str, tail: str, size: int) -> Iterator[Event]:
    ranks = state.ranks
    for r in launch.ranks:
        free = ranks.cards[r].free_gib
        yield Say(f"Capture {name} CUDA graph begin. {head}, avail mem={free:.2f} GB", rank_of(launch, r))
    try:
        ranks.take(size)
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "draft-oom", "oom-graph-capture")) from problem
    yield Wait(6, "graphs")
    state.graph += size
    for r in launch.ranks:
        yield Say(
            f"Capture {name} CUDA graph end. {tail}elapsed=6.00 s, mem usage={size / GIB:.2f} GB, "
            f"avail mem={ranks.cards[r].free_gib:.2f} GB.",
            rank_of(launch, r),
        )
    yield from holds(ranks)
