"""Free memory of a GPU when loading begins: given, or estimated from what nvidia-smi calls the total.

The driver keeps a part of the card, CUDA's context and the loaded modules take another, and communicators a third.
Measured on
2x A6000, 2x RTX 4090, H100, H200 and RTX PRO 6000 (see docs/planner.md); the interval is what those launches spread over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsagent_tools.sglang.gpus import GpuFacts

NVLINK = re.compile(r"H200|H100|H800|H20\b|GH200|B[123]00|GB[23]00|A100|A800|V100", re.IGNORECASE)
PCIE = re.compile(r"PCIe|NVL?\b", re.IGNORECASE)
CONTEXT_GIB = 0.67
"""CUDA context, modules and stream pool of a single process (H100 and H200)."""
PEER_GIB = 0.72
"""The same and communicators on cards without NVLink, per rank."""
NVLINK_PEER_GIB = 1.50
"""The same with NCCL over NVLink (2x H200: 0.97 of it is "Init torch distributed")."""


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """GiB at "Load weight begin": the expected value and how far it may be off, and where it comes from."""

    gib: float
    low: float
    high: float
    basis: str


def driver_reserve_gib(total_mib: float) -> float:
    """What the driver withholds: 455 MiB on a 48 GB card, 482 on a 24 GB card, about 615 on those over 90 GB."""
    return 0.60 if total_mib > 90_000 else 0.46


def free_memory(gpu: GpuFacts, ranks: int, given: float | None) -> FreeMemory:
    """`ranks` is tp times pp. `given` is the free memory at load begin in GiB, when it was measured."""
    if given is not None:
        return FreeMemory(given, given - 0.02, given + 0.02, "free memory given")
    reserve = driver_reserve_gib(gpu.total_mib) if gpu.free_mib is None else 0.0
    start = gpu.total_gib if gpu.free_mib is None else gpu.free_mib / 1024
    if ranks == 1:
        used, low, high = reserve + CONTEXT_GIB, 0.25, 0.15
    elif NVLINK.search(gpu.name) and not PCIE.search(gpu.name):
        used, low, high = reserve + NVLINK_PEER_GIB, 0.45, 0.60
    else:
        used, low, high = reserve + PEER_GIB, 0.22, 0.22
    centre = max(0.1, start - used)
    basis = "total memory only: free memory estimated"
    if gpu.free_mib is not None:
        low, high, basis = 0.7 * low, 0.7 * high, "free memory of nvidia-smi, less what a process needs to start"
    return FreeMemory(centre, max(0.05, centre - low), centre + high, basis)
