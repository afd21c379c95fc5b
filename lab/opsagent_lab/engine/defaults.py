"""What SGLang chooses when a memory flag is not given: chunk, graph sizes, memory fraction (server_args.py,
memory_hook.py).
"""

from __future__ import annotations

from opsagent_lab.engine.settings import Settings
from opsagent_lab.engine.shape import Shape


def chunk_and_graphs(total_mib: int, tp: int, version: str) -> tuple[int, int]:
    """(chunked_prefill_size, cuda_graph_max_bs) for the smallest GPU's nvidia-smi total."""
    wide = tp >= 4
    if total_mib < 20 * 1024:
        return 2048, 8
    if total_mib < 35 * 1024:
        return (4096, 160 if wide else 48) if version == "0.5.23" else (2048, 80 if wide else 24)
    if total_mib < 60 * 1024:
        return 4096, 160 if wide else 32
    return (8192 if total_mib < 160 * 1024 else 16384), 512 if wide or total_mib >= 160 * 1024 else 256


def piecewise_sizes(chunk: int) -> list[int]:
    """Token counts for which piecewise graphs are captured."""
    spans = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, chunk, 512))
    return [n for first, last, step in spans for n in range(first, last + 1, step) if n <= chunk]


def graph_sizes(max_bs: int, *, spec: bool) -> list[int]:
    """Batch sizes for which decode graphs are captured, before the number of requests cuts the list."""
    if spec:
        spans = ((1, 8, 1), (10, 32, 2), (40, 64, 4), (72, 256, 8), (272, max_bs, 16))
        sizes = [n for first, last, step in spans for n in range(first, last + 1, step)]
    else:
        wide = ((16, 256, 8), (272, 512, 16), (544, max_bs, 32))
        sizes = [1, 2, 4, 8, 12, *(n for first, last, step in wide for n in range(first, last + 1, step))]
    return [n for n in sizes if n <= max_bs]


def captured(sizes: list[int], requests: int) -> list[int]:
    """The sizes that are really captured for `requests` running requests."""
    kept = [n for n in sizes if n <= requests]
    if sizes and sizes[-1] > requests and requests not in kept:
        kept.append(requests)
    return sorted(kept)


def _spec_reserve(s: Settings) -> int:
    if s.spec is None or s.modern or s.spec == "NGRAM":
        return 0
    if s.spec == "STANDALONE":
        return 6144
    return 2048 if s.version == "0.5.9" else 4096


def vision_factor(shape: Shape) -> float:
    """The share that a model with a vision tower keeps of the fraction."""
    v = shape.vision
    if v is None:
        return 1.0
    layers = v.mlp_layers_known or 24
    ratio = layers * v.hidden**2 / (24 * 1024**2)
    return 0.95 * min(max(1 - 0.1 * (ratio - 1), 0.8), 1.05)


def mem_fraction(s: Settings, shape: Shape, total_mib: int) -> float:
    """`mem_fraction_static` when it is not given."""
    reserved = 512 + 1.5 * max(s.chunked, 2048) + 2 * s.graph_max_bs + s.tp / 8 * 1024
    if s.piecewise:
        reserved += 8 * len(piecewise_sizes(s.chunked))
    if total_mib > 60 * 1024:
        reserved = max(reserved, 10240)
    reserved += _spec_reserve(s)
    fraction = round((total_mib - reserved) / total_mib, 3)
    return fraction if s.language_only else fraction * vision_factor(shape)
