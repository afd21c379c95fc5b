"""The cards, as far as loading a server depends on them: compute capability, and what a process costs before it
loads anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsagent_lab.engine.card import GIB, MIB


@dataclass(frozen=True, slots=True)
class Gpu:
    """One visible GPU. Sizes in MiB; `free_mib` is what the driver would still give to a new process."""

    index: int
    name: str
    total_mib: int
    free_mib: float
    sm: int
    """Compute capability without the dot: 86, 90, 120."""
    others: tuple[tuple[int, int], ...] = ()
    """Processes that hold memory on it: (pid, MiB)."""
    reserved: int | None = None
    """MiB that the driver keeps; None: what cards of that name keep."""
    overhead_mib: int = 0
    """What one rank's context and collectives take together; 0: what cards of that kind take."""

    @property
    def usable_mib(self) -> float:
        """What the driver gives to all processes together."""
        kept = reserved_mib(self.name, self.total_mib) if self.reserved is None else self.reserved
        return self.total_mib - kept

    def context_bytes(self, tp: int) -> int:
        """CUDA context and modules of one rank."""
        if self.overhead_mib:
            return max(0, self.overhead_mib * MIB - distributed_bytes(self.sm, tp))
        return context_bytes(self.sm, tp)


_RESERVED = {"A6000": 455, "H200": 616, "4090": 482, "H100": 551, "A100": 870, "3090": 449}


def reserved_mib(name: str, total_mib: int) -> int:
    """MiB that nvidia-smi counts in memory.total and no process ever gets (driver, page tables)."""
    return next((mib for key, mib in _RESERVED.items() if key in name), round(total_mib * 0.0095))


_SM = {
    "A6000": 86, "A5000": 86, "A4000": 86, "A40": 86, "A10": 86, "3090": 86, "3080": 86, "A100": 80, "A30": 80,
    "4090": 89, "4080": 89, "6000 Ada": 89, "L40": 89, "L4": 89, "L20": 89, "H100": 90, "H200": 90, "H20": 90,
    "B200": 100, "B100": 100, "B300": 103, "GB10": 121, "PRO 6000": 120, "PRO 4500": 120, "5090": 120, "5080": 120,
    "2080": 75, "T4": 75, "V100": 70,
}  # fmt: skip


def sm_of(name: str) -> int:
    """Compute capability of a card by its marketing name; 80 when unknown."""
    hits = [key for key in _SM if key in name]
    return _SM[max(hits, key=len)] if hits else 80


def context_bytes(sm: int, tp: int) -> int:
    """CUDA context and modules of one rank. H200: 0.51 GiB alone, 0.61 with two ranks; workstation cards about 0.4."""
    if sm >= 90 and sm < 120:
        return round((0.51 if tp == 1 else 0.61) * GIB)
    return round((0.40 if tp == 1 else 0.42) * GIB)


def distributed_bytes(sm: int, tp: int) -> int:
    """What "Init torch distributed ends" reports: NCCL and its buffers."""
    if tp == 1:
        return round(0.09 * GIB)
    return round((0.97 if 90 <= sm < 120 else 0.31) * GIB)


STREAM_BYTES = 70 * MIB
"""The first stream of a process makes PyTorch's whole pool of streams; measured on an H200, PyTorch 2.11."""
