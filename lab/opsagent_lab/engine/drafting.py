"""The draft model of speculative decoding in 0.5.9 to 0.5.11: loaded after the target's pools and graphs, into
what is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsagent_lab.engine import defaults, memory, noise, progress, tensors
from opsagent_lab.engine.card import GIB
from opsagent_lab.engine.faults import Fault
from opsagent_lab.engine.launch import Event, Launch, Say, Trouble, Wait
from opsagent_lab.engine.loading import (
    Loaded,
    draft_tensors,
    everywhere,
    first,
    holds,
    kv_dtype_name,
    load_end,
    rank_of,
    scheduler_tokenizer,
)
from opsagent_lab.engine.memory import DoesNotFit


def draft(launch: Launch, state: Loaded) -> Iterator[Event]:
    """Load, pool and graphs of the draft model."""
    s, ranks, z = launch.settings, state.ranks, state.sizing
    if s.spec not in ("EAGLE", "EAGLE3", "STANDALONE") or z is None:
        return
    yield from everywhere(launch, "Init torch distributed begin.")
    yield from everywhere(launch, "Init torch distributed ends. elapsed=0.00 s, mem usage=0.00 GB")
    for r in launch.ranks:
        yield Say(f"Load weight begin. avail mem={ranks.cards[r].free_gib:.2f} GB", rank_of(launch, r))
    before = [card.free for card in ranks.cards]
    try:
        ranks.allocate(lambda: draft_tensors(launch))
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "draft-oom", "oom-weight-load")) from problem
    seconds = 0.01 if launch.dummy else 1.4
    yield Wait(seconds, "draft")
    for r in launch.ranks:
        lost = before[r] - ranks.cards[r].free
        yield Say(load_end(launch, seconds, launch.shape.draft_class, ranks.cards[r].free, lost), rank_of(launch, r))
    yield from holds(ranks)
    if not launch.shape.draft_layers and launch.shape.experts:
        name = launch.shape.architecture
        words = f"'{name}' object has no attribute 'set_embed_and_head'"
        raise Fault(Trouble("draft-oom", "AttributeError", words, "draft-arch-mismatch"))
    yield first(launch, f"Using KV cache dtype: {kv_dtype_name(launch)}")
    try:
        ranks.draft_pool(z)
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "draft-oom", "oom-pool-alloc")) from problem
    half = memory.kv_half(launch.shape, s, z.tokens, launch.shape.drafting_layers) / GIB
    yield from everywhere(
        launch, f"KV Cache is allocated. #tokens: {z.tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB"
    )
    for r in launch.ranks:
        yield Say(f"Memory pool end. avail mem={ranks.cards[r].free_gib:.2f} GB", rank_of(launch, r))
    yield from _after(launch, state)


def _after(launch: Launch, state: Loaded) -> Iterator[Event]:
    s, ranks = launch.settings, state.ranks
    for r in launch.ranks:
        yield from noise.linear_backend(launch, rank_of(launch, r))
    if s.release >= (0, 5, 10):
        yield from everywhere(launch, "Disable piecewise CUDA graph because --disable-piecewise-cuda-graph is set")
    yield from scheduler_tokenizer(launch)
    ranks.give(tensors.draft_shared(launch.shape, s.tp))
    if s.graphs:
        if s.spec_steps > 1:
            yield from _graphs(launch, state, "draft")
        yield from _graphs(launch, state, "draft extend")
    yield from holds(ranks)


def _graphs(launch: Launch, state: Loaded, what: str) -> Iterator[Event]:
    s, ranks, z = launch.settings, state.ranks, state.sizing
    assert z is not None
    sizes = defaults.captured(defaults.graph_sizes(s.graph_max_bs, spec=True), z.requests)
    for r in launch.ranks:
        yield Say(
            f"Capture {what} cuda graph begin. This can take up to several minutes. "
            f"avail mem={ranks.cards[r].free_gib:.2f} GB",
            rank_of(launch, r),
        )
    size, before = memory.draft_graph_bytes(sizes), ranks.cards[0].free_gib
    try:
        ranks.take(size)
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "draft-oom", "oom-graph-capture")) from problem
    yield from progress.capture(sizes, 1.2, 0.5, before, size / GIB)
    for r in launch.ranks:
        yield Say(
            f"Capture {what} cuda graph end. Time elapsed: {1.2 + len(sizes) * 0.5:.2f} s. mem usage={size / GIB:.2f} GB. "
            f"avail mem={ranks.cards[r].free_gib:.2f} GB.",
            rank_of(launch, r),
        )
