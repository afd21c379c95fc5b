"""The memory of one GPU as one process sees it: PyTorch's caching allocator in front of the driver."""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 2**30
MIB = 2**20


class OutOfMemory(Exception):
    """A CUDA allocation that does not fit. `tried` and `free` in bytes."""

    def __init__(self, tried: int, free: int) -> None:
        super().__init__(f"tried {tried}, free {free}")
        self.tried, self.free = tried, free


@dataclass(slots=True)
class Card:
    """What is left of one GPU (bytes) while one rank loads.

    Segments as PyTorch 2.9 to 2.14 asks the driver for them: up to 1 MiB out of shared 2 MiB segments, up to 10 MiB out of
    shared 20 MiB ones, anything larger in a segment of its own, rounded up to 2 MiB (CUDACachingAllocator, kSmallSize,
    kMinLargeAlloc, kRoundLarge).
    """

    free: int
    held: int = 0
    _rest: dict[int, list[int]] = field(default_factory=dict)

    def take(self, size: int) -> None:
        """Memory that is not PyTorch's: contexts, NCCL, streams."""
        if size > self.free:
            raise OutOfMemory(size, self.free)
        self.free -= size
        self.held += size

    def give(self, size: int) -> None:
        """Give whole segments back to the driver (what `empty_cache` does)."""
        self.free += size
        self.held -= size

    def allocate(self, size: int) -> int:
        """One tensor; returns the bytes that the driver lost through it."""
        if size <= 0:
            return 0
        if size > 10 * MIB:
            segment = -(-size // (2 * MIB)) * 2 * MIB
            self.take(segment)
            return segment
        kind = 2 * MIB if size <= MIB else 20 * MIB
        rounded = -(-size // 512) * 512
        blocks = self._rest.setdefault(kind, [])
        fitting = [b for b in blocks if b >= rounded]
        if fitting:
            best = min(fitting)
            blocks.remove(best)
            blocks.append(best - rounded)
            return 0
        self.take(kind)
        blocks.append(kind - rounded)
        return kind

    @property
    def free_gib(self) -> float:
        return self.free / GIB
