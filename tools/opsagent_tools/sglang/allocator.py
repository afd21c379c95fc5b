"""What PyTorch's caching allocator takes from the driver for a list of tensors.

SGLang's "mem usage" lines and its budget read the driver's free memory, so sizes must be rounded as the allocator rounds
them (PyTorch 2.x c10/cuda/CUDACachingAllocator.cpp): blocks are multiples of 512 B; requests up to 1 MiB share segments of
2 MiB, requests under 10 MiB share segments of 20 MiB, larger ones get a segment of their own, rounded up to 2 MiB.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

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
