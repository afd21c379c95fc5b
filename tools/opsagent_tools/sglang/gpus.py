"""GPU models: compute capability by name, and how much memory the driver and CUDA keep for themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsagent_tools.errors import InputError

CAPABILITY: tuple[tuple[str, tuple[int, int]], ...] = (
    (r"GB300|B300", (10, 3)),
    (r"GB200|B200|B100", (10, 0)),
    (r"GB10\b|DGX Spark", (12, 1)),
    (r"RTX PRO|RTX 50[5-9]0|\b50[5-9]0\b", (12, 0)),
    (r"H200|H100|H800|H20\b|GH200", (9, 0)),
    (r"L40S?|L20\b|L4\b|L2\b|RTX 40[5-9]0|\b40[5-9]0\b|Ada", (8, 9)),
    (r"A6000|A5500|A5000|A4500|A4000|A40\b|A10G?\b|A16\b|A2\b|RTX 30[5-9]0|\b30[5-9]0\b", (8, 6)),
    (r"A100|A800|A30\b", (8, 0)),
    (r"T4\b|RTX 20[6-8]0|Titan RTX|Quadro RTX", (7, 5)),
    (r"V100|Titan V", (7, 0)),
    (r"P100|P40|P4\b", (6, 0)),
)


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The cards of one host: all of one kind. `total_mib` is nvidia-smi's memory.total of the smallest."""

    name: str
    total_mib: float
    count: int = 1
    capability: tuple[int, int] | None = None
    free_mib: float | None = None
    """nvidia-smi's memory.free of the fullest card before anything of ours starts; None when only the total is known."""

    @property
    def sm(self) -> tuple[int, int] | None:
        """Compute capability, from the name when it was not measured; None when the name is unknown."""
        return self.capability or capability_of(self.name)

    @property
    def total_gib(self) -> float:
        return self.total_mib / 1024


def capability_of(name: str) -> tuple[int, int] | None:
    for pattern, capability in CAPABILITY:
        if re.search(pattern, name, re.IGNORECASE):
            return capability
    return None


def parse_gpu(text: str, count: int) -> GpuFacts:
    """`NAME:MIB` as the command line has it, e.g. `RTX A6000:49140`. InputError without a memory size."""
    name, colon, size = text.rpartition(":")
    try:
        mib = float(size)
    except ValueError:
        mib = 0.0
    if not colon or not name.strip() or not 0 < mib < 10_000_000:
        raise InputError(
            f"--gpu {text!r} says no memory size",
            where="--gpu",
            hint='Write NAME:MIB with nvidia-smi\'s memory.total in MiB, e.g. --gpu "RTX A6000:49140".',
        )
    if count < 1:
        raise InputError(f"--num-gpus {count} is not a number of GPUs", where="--num-gpus", hint="Give 1 or more.")
    return GpuFacts(name.strip(), mib, count)
