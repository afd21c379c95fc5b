"""What schedulers do while they load, in the order and words of 0.5.9 to 0.5.11: connect, load, pools.

0.5.23 loads the draft before the pools; `modern.py` has that order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from opsagent_lab.engine import budget, faults, memory, noise, progress, tensors
from opsagent_lab.engine.card import GIB
from opsagent_lab.engine.faults import Fault, kernel_trouble, shard_trouble, startup_trouble
from opsagent_lab.engine.launch import Event, Hold, Launch, Limits, Say, Trouble, Wait
from opsagent_lab.engine.memory import DoesNotFit, Ranks


@dataclass(slots=True)
class Loaded:
    """What the phases know so far."""

    ranks: Ranks
    weights: int = 0
    sizing: budget.Sizing | None = None
    graph: int = 0
    garbage: str = ""


def rank_of(launch: Launch, rank: int) -> int | None:
    """How a line of a rank is labelled: a single rank has no label."""
    return rank if launch.settings.tp > 1 else None


def everywhere(launch: Launch, text: str) -> Iterator[Say]:
    for r in launch.ranks:
        yield Say(text, rank_of(launch, r))


def first(launch: Launch, text: str) -> Say:
    return Say(text, rank_of(launch, 0))


def holds(ranks: Ranks) -> Iterator[Hold]:
    for r, card in enumerate(ranks.cards):
        yield Hold(r, card.held)


def connect(launch: Launch) -> Generator[Event, None, Loaded]:
    """The ranks start and find each other."""
    for r in launch.ranks:
        label = rank_of(launch, r)
        yield from noise.generation_config(launch, label)
        yield from noise.processor(launch, label)
        yield from noise.tokenizer(launch, label)
    if launch.shape.vision or launch.settings.tp > 1:
        yield from noise.tokenizer(launch)
    for r in launch.ranks:
        yield from noise.processor_import(launch, rank_of(launch, r))
    yield from everywhere(launch, "Init torch distributed begin.")
    trouble = startup_trouble(launch)
    if trouble:
        raise Fault(trouble)
    try:
        ranks = Ranks.connect(launch)
        yield Wait(0.9, "distributed")
        if launch.settings.tp > 1:
            yield first(launch, f"sglang is using nccl=={launch.nccl}")
            if faults.hangs(launch):
                yield Wait(float("inf"), "hang")
        took = ranks.distribute()
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "weights-oom", "oom-weight-load")) from problem
    elapsed = 0.22 if launch.settings.tp == 1 else 0.9
    yield from everywhere(
        launch, f"Init torch distributed ends. elapsed={elapsed:.2f} s, mem usage={took / GIB:.2f} GB"
    )
    if not launch.shape.vision and launch.settings.tp == 1:
        yield from noise.tokenizer(launch)
    yield from holds(ranks)
    yield from _balance(launch, ranks)
    yield Wait(0.8, "imports")
    for r in launch.ranks:
        yield from noise.model_imports(launch, rank_of(launch, r))
    return Loaded(ranks)


def _balance(launch: Launch, ranks: Ranks) -> Iterator[Event]:
    for r, card in enumerate(ranks.cards):
        if launch.settings.tp > 1 and ranks.pre < card.free * 0.9:
            pre, mine = ranks.pre / GIB, card.free / GIB
            yield Say(
                "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                f"pre_model_load_memory={pre}, local_gpu_memory={mine}, local_gpu_memory * 0.9={mine * 0.9}",
                rank_of(launch, r),
            )


def load(launch: Launch, state: Loaded) -> Iterator[Event]:
    """The target's weights."""
    ranks = state.ranks
    for r in launch.ranks:
        yield Say(f"Load weight begin. avail mem={ranks.cards[r].free_gib:.2f} GB", rank_of(launch, r))
    trouble = kernel_trouble(launch, at="load")
    if trouble:
        raise Fault(trouble)
    for r in launch.ranks:
        yield from noise.building(launch, rank_of(launch, r))
    before = [card.free for card in ranks.cards]
    try:
        state.weights = ranks.load_target()
    except DoesNotFit as problem:
        yield from holds(ranks)
        cause = "gpu-memory-occupied" if launch.gpus[problem.rank].others else "oom-weight-load"
        raise Fault(memory.out_of_memory(problem, "weights-oom", cause)) from problem
    seconds = 0.22 if launch.dummy else max(1.0, sum(s.size for s in launch.model.shards) / 2**20 / launch.load_mib_s)
    yield from holds(ranks)
    if not launch.dummy:
        yield from _read_shards(launch, seconds)
    else:
        yield Wait(seconds, "load")
    state.garbage = _garbage(launch)
    for r in launch.ranks:
        lost = before[r] - ranks.cards[r].free
        yield Say(load_end(launch, seconds, launch.shape.architecture, ranks.cards[r].free, lost), rank_of(launch, r))
    ranks.regrow_rope()
    yield first(launch, f"Using KV cache dtype: {kv_dtype_name(launch)}")


def _garbage(launch: Launch) -> str:
    """What will be wrong with the answers although nothing fails.

    Dense Qwen3.5/3.6 on 0.5.9 with several ranks: `Qwen2MoeMLP.forward` takes the batch for `should_allreduce_fusion` and
    skips the all-reduce of every layer (models/qwen3_5.py:403 of 0.5.9).
    """
    if launch.dummy:
        return "repeat"
    if any(s.wrong == "missing" for s in launch.model.shards):
        return "nan"
    s = launch.settings
    skipped = s.version == "0.5.9" and s.tp > 1 and launch.shape.architecture == "Qwen3_5ForConditionalGeneration"
    return "wrong" if skipped else launch.garbage


def _read_shards(launch: Launch, seconds: float) -> Iterator[Event]:
    present = [s for s in launch.model.shards if s.wrong != "missing"]
    bad = next((i for i, s in enumerate(present) if s.wrong), None)
    if bad is None:
        yield from progress.shards(max(1, len(present)), seconds)
        return
    shown = progress.shards(len(present), seconds)
    steps = 0
    for event in shown:
        if isinstance(event, Wait):
            steps += 1
            if steps > bad:
                break
        yield event
    yield Say("", stamp=False)
    raise Fault(shard_trouble(launch, present[bad]))


def load_end(launch: Launch, seconds: float, name: str, free: int, lost: int) -> str:
    middle = f"dtype={dtype_name(launch)}, " if launch.settings.version == "0.5.9" else quant_words(launch)
    return (
        f"Load weight end. elapsed={seconds:.2f} s, type={name}, {middle}avail mem={free / GIB:.2f} GB, "
        f"mem usage={lost / GIB:.2f} GB."
    )


def quant_words(launch: Launch) -> str:
    quant = launch.shape.quant
    return f"quant={quant}, " if quant else ""


def dtype_name(launch: Launch) -> str:
    return f"torch.{launch.shape.dtype}"


def kv_dtype_name(launch: Launch) -> str:
    kind = launch.settings.kv_dtype
    return {"auto": dtype_name(launch), "fp8_e5m2": "torch.float8_e5m2", "fp8_e4m3": "torch.float8_e4m3fn"}.get(
        kind, "torch.bfloat16"
    )


def pools(launch: Launch, state: Loaded) -> Iterator[Event]:
    """Recurrent state and KV of the target."""
    ranks = state.ranks
    try:
        z = state.sizing = ranks.size()
    except budget.NoRoom as problem:
        cause = "hybrid-spec-state-reserve" if launch.shape.hybrid and launch.settings.spec else "kv-pool-no-room"
        raise Fault(Trouble("pool", "RuntimeError", problem.detail, cause)) from problem
    before = ranks.least_free
    try:
        ranks.pools(z)
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "pool-oom", "oom-pool-alloc")) from problem
    if z.state is not None:
        yield from everywhere(launch, mamba_line(launch, z))
    half = memory.kv_half(launch.shape, launch.settings, z.tokens, launch.shape.attention_layers) / GIB
    yield from everywhere(
        launch, f"KV Cache is allocated. #tokens: {z.tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB"
    )
    for r in launch.ranks:
        yield Say(f"Memory pool end. avail mem={ranks.cards[r].free_gib:.2f} GB", rank_of(launch, r))
    yield from holds(ranks)
    assert before >= ranks.least_free


def mamba_line(launch: Launch, z: budget.Sizing) -> str:
    state, slots = z.state, z.slots or 0
    assert state is not None
    text = (
        f"Mamba Cache is allocated. max_mamba_cache_size: {slots}, conv_state size: {state.conv * (slots + 1) / GIB:.2f}GB, "
        f"ssm_state size: {state.ssm * (slots + 1) / GIB:.2f}GB "
    )
    if launch.settings.spec:
        inner = (z.requests + 1) * launch.settings.spec_tokens
        text += (
            f"intermediate_ssm_state_cache size: {state.ssm * inner / GIB:.2f}GB "
            f"intermediate_conv_window_cache size: {state.conv * inner / GIB:.2f}GB "
        )
    return text


def backends(launch: Launch, state: Loaded) -> Iterator[Event]:
    for r in launch.ranks:
        yield from noise.linear_backend(launch, rank_of(launch, r))
    for r in launch.ranks:
        yield from noise.fused_allreduce(launch, r)
    try:
        state.ranks.workspaces()
    except DoesNotFit as problem:
        raise Fault(memory.out_of_memory(problem, "pool-oom", "oom-pool-alloc")) from problem


def scheduler_tokenizer(launch: Launch) -> Iterator[Event]:
    for r in launch.ranks:
        yield from noise.processor(launch, rank_of(launch, r), announce=False)
        yield from noise.tokenizer(launch, rank_of(launch, r))


def summary(launch: Launch, state: Loaded) -> Iterator[Event]:
    s, z = launch.settings, state.sizing
    assert z is not None
    free = state.ranks.cards[0].free
    yield first(
        launch,
        f"max_total_num_tokens={z.tokens}, chunked_prefill_size={s.chunked}, max_prefill_tokens={s.max_prefill_tokens}, "
        f"max_running_requests={z.requests}, context_len={budget.context_of(launch.shape, s)}, "
        f"available_gpu_mem={free / GIB:.2f} GB",
    )


def limits(launch: Launch, state: Loaded) -> Limits:
    z = state.sizing
    assert z is not None
    half = memory.kv_half(launch.shape, launch.settings, z.tokens, launch.shape.attention_layers)
    return Limits(
        tokens=z.tokens,
        requests=z.requests,
        context=budget.context_of(launch.shape, launch.settings),
        slots=z.slots,
        weights=state.weights,
        kv=2 * half,
        graph=state.graph,
        available=state.ranks.cards[0].free,
        garbage=state.garbage,
    )


def draft_tensors(launch: Launch) -> Iterator[int]:
    if launch.shape.draft_layers:
        return tensors.draft(launch.shape, launch.settings.tp)
    return tensors.target(launch.shape, launch.settings.tp)
