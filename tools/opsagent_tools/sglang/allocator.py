"""What PyTorch's caching allocator takes from the driver for a list of tensors.

SGLang's "mem usage" lines and its budget read the driver's free memory, so sizes must be rounded as the allocator rounds
them (PyTorch 2.x c10/cuda/CUDACachingAllocator.cpp): blocks are multiples of 512 B; requests up to 1 MiB share segments of
2 MiB, requests under 10 MiB share segments of 20 MiB, larger ones get a segment of their own, rounded up to 2 MiB.
Free memory is
given back by whole segments only, so what stays behind from a conversion can hold on to one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

MIB = 1 << 20
GIB = 1 << 30
BLOCK = 512
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT = 10 * MIB
ROUND = 2 * MIB


def segment(size: int) -> int:
    """Bytes that one tensor of `size` bytes takes from the driver when it shares its segment with nothing."""
    if size <= 0:
        return 0
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // ROUND) * ROUND


def reserved(sizes: Iterable[int]) -> int:
    """Bytes taken from the driver for tensors of these sizes, allocated in this order and kept.

    Free remainders of earlier segments are reused best fit, as the allocator does: of the small pool always, of the large
    pool when more than 1 MiB would remain after the split.
    """
    total = 0
    pools: tuple[list[int], list[int]] = ([], [])
    for size in sizes:
        if size <= 0:
            continue
        need = -(-size // BLOCK) * BLOCK
        small = need <= SMALL
        free = pools[0] if small else pools[1]
        at = bisect.bisect_left(free, need)
        if at < len(free):
            block = free.pop(at)
        else:
            block = segment(need)
            total += block
        left = block - need
        if left >= BLOCK if small else left > SMALL:
            bisect.insort(free, left)
    return total


@dataclass(slots=True)
class Block:
    """A piece of a segment, linked to its neighbours so that free ones can be merged."""

    segment: int
    size: int
    free: bool = False
    before: Block | None = None
    behind: Block | None = None
    number: int = 0


@dataclass
class Heap:
    """The caching allocator with frees: for tensors that are replaced while a model is loaded."""

    sizes: list[int] = field(default_factory=list)
    """Bytes of each segment."""
    used: list[int] = field(default_factory=list)
    """Blocks in use of each segment; a segment without any is given back by `empty_cache`."""
    pools: tuple[list[tuple[int, int, Block]], list[tuple[int, int, Block]]] = field(default_factory=lambda: ([], []))
    serial: int = 0

    def take(self, size: int) -> Block:
        """Allocate `size` bytes."""
        need = max(BLOCK, -(-size // BLOCK) * BLOCK)
        small = need <= SMALL
        pool = self.pools[0] if small else self.pools[1]
        at = bisect.bisect_left(pool, (need, -1))
        if at < len(pool):
            block = pool.pop(at)[2]
            block.free = False
        else:
            self.sizes.append(segment(need))
            self.used.append(0)
            self.serial += 1
            block = Block(len(self.sizes) - 1, self.sizes[-1], number=self.serial)
        self.used[block.segment] += 1
        left = block.size - need
        if left >= BLOCK if small else left > SMALL:
            self.serial += 1
            rest = Block(block.segment, left, True, block, block.behind, self.serial)
            if block.behind is not None:
                block.behind.before = rest
            block.behind, block.size = rest, need
            bisect.insort(pool, (left, rest.number, rest))
        return block

    def give(self, block: Block) -> None:
        """Free a block and merge it with free neighbours."""
        pool = self.pools[0] if self.sizes[block.segment] == SMALL_SEGMENT and block.size <= SMALL else self.pools[1]
        self.used[block.segment] -= 1
        for other in (block.before, block.behind):
            if other is not None and other.free:
                pool.pop(bisect.bisect_left(pool, (other.size, other.number)))
                block.size += other.size
                if other is block.before:
                    block.before = other.before
                    if other.before is not None:
                        other.before.behind = block
                else:
                    block.behind = other.behind
                    if other.behind is not None:
                        other.behind.before = block
        block.free = True
        bisect.insort(pool, (block.size, block.number, block))

    def reserved(self) -> int:
        """Bytes held from the driver after `empty_cache`."""
        return sum(size for size, used in zip(self.sizes, self.used, strict=True) if used)
