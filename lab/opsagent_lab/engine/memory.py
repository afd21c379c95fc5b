"""What each phase of a launch takes from the cards, rank by rank, as real allocations that can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opsagent_lab.engine import budget, hardware, tensors
from opsagent_lab.engine.card import GIB, MIB, Card, OutOfMemory
from opsagent_lab.engine.launch import Launch, Trouble
from opsagent_lab.engine.settings import Settings
from opsagent_lab.engine.shape import Shape

_COLLECTIVES = 8 * MIB
"""Buffers that the first collectives of a rank take while weights are loaded (tp > 1; fitted to the H200 logs)."""
_WORKSPACE = round(0.095 * GIB)
_FUSED = round(3.53 * GIB)
_ADVICE = (
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)


class DoesNotFit(Exception):
    """An allocation failed on one rank; `message` is PyTorch's."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank, self.message = rank, message


@dataclass(slots=True)
class Ranks:
    """The cards of one launch, one per rank."""

    launch: Launch
    cards: list[Card]
    pre: int = 0
    """Bytes free before loading, the least over all ranks: what the memory fraction is a fraction of."""

    @classmethod
    def connect(cls, launch: Launch) -> Ranks:
        """Every rank makes its CUDA context. The collectives come with `distribute`."""
        ranks = cls(launch, [Card(launch.free(r)) for r in launch.ranks])
        s = launch.settings
        ranks.each(lambda card, r: card.take(launch.gpus[r].context_bytes(s.tp)))
        return ranks

    def each(self, do: Callable[[Card, int], object]) -> None:
        """Do something on every rank; the first that fails speaks for all."""
        for rank, card in enumerate(self.cards):
            try:
                do(card, rank)
            except OutOfMemory as problem:
                raise DoesNotFit(rank, self._words(rank, card, problem)) from problem

    def allocate(self, sizes: Callable[[], Iterable[int]]) -> int:
        """Allocate the same tensors on every rank; returns what the first card lost."""
        before = self.cards[0].free

        def place(card: Card, _rank: int) -> None:
            for size in sizes():
                card.allocate(size)

        self.each(place)
        return before - self.cards[0].free

    def take(self, size: int) -> None:
        self.each(lambda card, _r: card.take(size))

    def give(self, size: int) -> None:
        self.each(lambda card, _r: card.give(size))

    @property
    def least_free(self) -> int:
        return min(card.free for card in self.cards)

    # -- phases

    def distribute(self) -> int:
        """NCCL; returns what it took. Afterwards `pre` is known."""
        s = self.launch.settings
        size = hardware.distributed_bytes(self.launch.gpus[0].sm, s.tp)
        self.take(size)
        self.pre = self.least_free
        if s.tp == 1:
            self.take(hardware.STREAM_BYTES)
        return size

    def load_target(self) -> int:
        launch = self.launch
        used = self.allocate(lambda: tensors.target(launch.shape, launch.settings.tp))
        if launch.settings.tp > 1:
            self.take(_COLLECTIVES)
            used += _COLLECTIVES
        return used

    def regrow_rope(self) -> None:
        s, shape = self.launch.settings, self.launch.shape
        context = budget.context_of(shape, s)
        self.each(
            lambda card, _r: tensors.regrow_rope(
                shape, card, context=context, steps=s.spec_steps, draft_tokens=s.spec_tokens
            )
        )

    def size(self) -> budget.Sizing:
        return budget.size(self.launch.shape, self.launch.settings, pre=self.pre, post=self.least_free)

    def pools(self, sizing: budget.Sizing) -> None:
        self.allocate(lambda: pool_tensors(self.launch.shape, self.launch.settings, sizing))

    def draft_pool(self, sizing: budget.Sizing) -> None:
        shape, s = self.launch.shape, self.launch.settings
        layer = kv_half(shape, s, sizing.tokens, 1)
        self.allocate(lambda: [layer] * (2 * shape.drafting_layers))

    def workspaces(self) -> None:
        """cuBLAS, attention workspaces, fused all-reduce."""
        s = self.launch.settings
        size = _WORKSPACE + (_FUSED if s.allreduce_fusion else 0)
        if s.attention_backend == "flashinfer":
            size += (512 if "Qwen3" in self.launch.shape.architecture else 384) * MIB
        self.take(size)

    def _words(self, rank: int, card: Card, problem: OutOfMemory) -> str:
        gpu = self.launch.gpus[rank]
        others = "".join(f"Process {pid} has {mib / 1024:.2f} GiB memory in use. " for pid, mib in gpu.others)
        mine = card.held
        return (
            f"CUDA out of memory. Tried to allocate {_human(problem.tried)}. GPU {gpu.index} has a total capacity of "
            f"{gpu.usable_mib / 1024:.2f} GiB of which {_human(problem.free)} is free. {others}"
            f"Including non-PyTorch memory, this process has {_human(mine)} memory in use. Of the allocated memory "
            f"{_human(max(0, mine - round(0.68 * GIB)))} is allocated by PyTorch, and 17.45 MiB is reserved by PyTorch but "
            f"unallocated. {_ADVICE}"
        )


def _human(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.2f} MiB"


def kv_half(shape: Shape, s: Settings, tokens: int, layers: int) -> int:
    """Bytes of all K (or all V) buffers of `layers` layers."""
    return (tokens + s.page_size) * budget.token_bytes(shape, s, layers) // 2


def pool_tensors(shape: Shape, s: Settings, z: budget.Sizing) -> list[int]:
    """The pools of the target as single tensors (mem_cache/memory_pool.py)."""
    out = []
    context = budget.context_of(shape, s)
    out.append((z.requests + (1 if s.release >= (0, 5, 11) else 0)) * (context + 4 + s.spec_tokens) * 4)
    if z.state is not None and z.slots is not None:
        rows = z.slots + 1
        out += [z.state.conv * rows, z.state.ssm * rows]
        if s.spec:
            inner = (z.requests + 1) * s.spec_tokens
            out += [z.state.ssm * inner, z.state.conv * inner]
    layers = shape.attention_layers
    per_layer = kv_half(shape, s, z.tokens, 1)
    out += [per_layer] * (2 * layers)
    out.append(8 * z.tokens)
    return out


def graph_bytes(launch: Launch, sizes: list[int]) -> int:
    """Memory of decode graphs. SGLang has no formula; this one is fitted to the H200 logs (0.06 to 0.47 GiB)."""
    if not sizes:
        return 0
    s, shape = launch.settings, launch.shape
    gib = 0.02 + (0.04 if shape.hybrid else 0) + (0.20 if s.spec else 0) + 0.0087 * len(sizes)
    logits = max(sizes) * max(1, s.spec_tokens) * shape.vocab * 4
    return round(gib * GIB) + logits


def draft_graph_bytes(sizes: list[int]) -> int:
    return round((0.022 + 0.0087 * len(sizes)) * GIB) if sizes else 0


def piecewise_bytes(launch: Launch, sizes: list[int]) -> int:
    return round(0.0087 * len(sizes) * GIB) + launch.settings.chunked * launch.shape.hidden * 25


def out_of_memory(problem: DoesNotFit, trace: str, cause: str) -> Trouble:
    return Trouble(trace, "torch.OutOfMemoryError", problem.message, cause)
