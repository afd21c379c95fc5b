"""The cards that a process may use, as the engine sees them."""

from __future__ import annotations

from collections.abc import Collection

from opsagent_lab.engine.hardware import Gpu, sm_of
from opsagent_lab.gpu_access import access
from opsagent_lab.program import Process
from opsagent_lab.state import Gpu as Card

NONE = "No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) is available."


def visible(process: Process, base: int = 0, own: Collection[int] = ()) -> tuple[list[Card], tuple[Gpu, ...]]:
    """Cards from `--base-gpu-id` on, after CUDA_VISIBLE_DEVICES; none when CUDA does not work. `own` pids are not others."""
    seen = access(process.world, process.host, process.user)
    cards = list(seen.gpus) if seen.ok and not seen.cuda_problem else []
    chosen = process.env.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        cards = [cards[int(i)] for i in chosen.split(",") if i.strip().isdigit() and int(i) < len(cards)]
    cards = cards[base:]
    return cards, tuple(_gpu(process, base + i, card, own) for i, card in enumerate(cards))


def _gpu(process: Process, index: int, card: Card, own: Collection[int]) -> Gpu:
    others = tuple(
        (proc.pid, proc.gpu_mib[card.uuid])
        for host in process.world.hosts.values()
        for proc in list(host.processes.values())
        if card.uuid in proc.gpu_mib and proc.pid not in own
    )
    sm = int(card.compute_capability.replace(".", "") or sm_of(card.name))
    free = float(process.world.gpu_free_mib(card))
    return Gpu(index, card.name, card.total_mib, free, sm, others, card.reserved_mib, card.context_mib)
