"""CUDA graphs: decode graphs for the batch sizes that the requests allow, piecewise graphs for text models."""

from __future__ import annotations

from collections.abc import Iterator

from opsagent_lab.engine import budget, defaults, memory, noise, progress
from opsagent_lab.engine.card import GIB
from opsagent_lab.engine.faults import Fault, kernel_trouble
from opsagent_lab.engine.launch import Event, Launch, Say, Trouble, Wait
from opsagent_lab.engine.loading import Loaded, everywhere, first, holds, rank_of
from opsagent_lab.engine.memory import DoesNotFit
from opsagent_lab.engine.traces import ADVICE


def graphs(launch: Launch, state: Loaded) -> Iterator[Event]:
    """Decode graphs and, for text models, piecewise graphs."""
    s, z = launch.settings, state.sizing
    assert z is not None
    if s.graphs:
        yield from _decode_graphs(launch, state, z)
    if z.requests == 0:
        raise Fault(
            Trouble("requests-zero", "AssertionError", "max_running_request is zero", "hybrid-spec-state-reserve")
        )
    if s.release < (0, 5, 10):
        return
    if not s.piecewise:
        yield from everywhere(launch, "Disable piecewise CUDA graph because --disable-piecewise-cuda-graph is set")
        return
    yield from _piecewise(launch, state)


def _piecewise(launch: Launch, state: Loaded) -> Iterator[Event]:
    s, ranks = launch.settings, state.ranks
    sizes = defaults.piecewise_sizes(s.chunked)
    for r in launch.ranks:
        yield Say(f"Capture piecewise CUDA graph begin. avail mem={ranks.cards[r].free_gib:.2f} GB", rank_of(launch, r))
    yield first(launch, f"Capture cuda graph num tokens {sizes}")
    total = len(sizes)
    yield Say(progress.bar(0, total, 0), stamp=False, end="\r")
    for n in range(2):
        yield Wait(4, "graphs")
        yield first(launch, f"Compiling a graph for dynamic shape takes {1.1 - n / 10:.2f} s")
    yield Say(progress.bar(total, total, 13.4, "Compiling num tokens (num_tokens=4)"), stamp=False)
    size = memory.piecewise_bytes(launch, sizes)
    try:
        ranks.take(size)
    except DoesNotFit as problem:
        raise Fault(_capture_failed(problem.message)) from problem
    yield Wait(12, "graphs")
    free = ranks.cards[0].free_gib
    yield Say(
        progress.bar(total, total, 5.6, f"Capturing num tokens (num_tokens=4 avail_mem={free:.2f} GB)"), stamp=False
    )
    state.graph += size
    for r in launch.ranks:
        yield Say(
            f"Capture piecewise CUDA graph end. Time elapsed: 20.29 s. mem usage={size / GIB:.2f} GB. "
            f"avail mem={ranks.cards[r].free_gib:.2f} GB.",
            rank_of(launch, r),
        )
    yield from holds(ranks)


def _decode_graphs(launch: Launch, state: Loaded, z: budget.Sizing) -> Iterator[Event]:
    s, ranks = launch.settings, state.ranks
    for r in launch.ranks:
        yield Say(
            "Capture cuda graph begin. This can take up to several minutes. "
            f"avail mem={ranks.cards[r].free_gib:.2f} GB",
            rank_of(launch, r),
        )
    if z.requests == 0:
        raise Fault(Trouble("capture-bs", "AssertionError", "capture_bs=[0]", "hybrid-spec-state-reserve"))
    sizes = defaults.captured(defaults.graph_sizes(s.graph_max_bs, spec=s.spec is not None), z.requests)
    yield first(launch, f"Capture cuda graph bs {sizes}")
    trouble = kernel_trouble(launch, at="graphs")
    if trouble:
        raise Fault(trouble)
    size, before = memory.graph_bytes(launch, sizes), ranks.cards[0].free_gib
    try:
        ranks.take(size)
    except DoesNotFit as problem:
        yield Say(progress.bar(0, len(sizes), 0), stamp=False)
        raise Fault(_capture_failed(problem.message)) from problem
    if launch.shape.hybrid and s.spec:
        for _ in range(4 if s.tp > 1 else 2):
            yield noise.triton_warning(launch)
    yield from noise.moe_configs(launch)
    slow = 9.9 if launch.shape.hybrid or launch.shape.experts else 1.5
    yield from progress.capture(sizes, slow, 0.6 if s.spec else 0.45, before, size / GIB)
    state.graph += size
    for r in launch.ranks:
        yield Say(
            f"Capture cuda graph end. Time elapsed: {slow + len(sizes) * 0.6:.2f} s. mem usage={size / GIB:.2f} GB. "
            f"avail mem={ranks.cards[r].free_gib:.2f} GB.",
            rank_of(launch, r),
        )
    yield from holds(ranks)


def _capture_failed(inner: str) -> Trouble:
    return Trouble(
        "graph-failed",
        "Exception",
        f"Capture cuda graph failed: {inner}\n{ADVICE}",
        "oom-graph-capture",
        {"inner": f"torch.OutOfMemoryError: {inner}"},
    )
