"""Progress bars: pieces of one line that overwrite each other with carriage returns, on stderr of the first rank."""

from __future__ import annotations

from collections.abc import Iterator

from opsagent_lab.engine.launch import Say, Wait

_BLOCKS = " ▏▎▍▌▋▊▉█"


def _bar(fraction: float, width: int = 10) -> str:
    full = int(fraction * width)
    rest = int((fraction * width - full) * 8)
    text = "█" * full + (_BLOCKS[rest] if full < width and rest else "")
    return text.ljust(width)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _speed(done: int, seconds: float, unit: str = "it") -> str:
    if not done or not seconds:
        return f"?{unit}/s"
    rate = done / seconds
    return f"{rate:.2f}{unit}/s" if rate >= 1 else f"{1 / rate:.2f}s/{unit}"


def bar(done: int, total: int, seconds: float, label: str = "", *, words: str = "") -> str:
    """One state of a tqdm bar."""
    left = _clock(seconds / done * (total - done)) if done else "?"
    head = f"{label}: " if label else ""
    shown = f"{100 * done // total:3d}%{words}|{_bar(done / total)}| {done}/{total}"
    return f"{head}{shown} [{_clock(seconds)}<{left}, {_speed(done, seconds)}]"


def shards(count: int, seconds: float) -> Iterator[Say | Wait]:
    """Loading `count` shards; SGLang's own bar has words instead of blocks."""

    def state(done: int, at: float) -> str:
        left = _clock(at / done * (count - done)) if done else "?"
        return (
            f"Multi-thread loading shards: {100 * done // count:3d}% Completed | {done}/{count} "
            f"[{_clock(at)}<{left}, {_speed(done, at)}]"
        )

    yield Say(state(0, 0), stamp=False, end="\r")
    for i in range(1, count + 1):
        yield Wait(seconds / count, "load")
        yield Say(state(i, seconds * i / count), stamp=False, end="\r" if i < count else "\n")


def capture(sizes: list[int], first: float, each: float, free_gib: float, used_gib: float) -> Iterator[Say | Wait]:
    """The bar of decode graphs, largest batch first; the first capture compiles kernels."""
    order = sorted(sizes, reverse=True)
    yield Say(bar(0, len(order), 0), stamp=False, end="\r")
    at = 0.0
    for i, bs in enumerate(order):
        share = 0.9 + 0.1 * i / max(1, len(order) - 1) if i else 0.08
        label = f"Capturing batches (bs={bs} avail_mem={free_gib - used_gib * share:.2f} GB)"
        yield Say(bar(i, len(order), at, label), stamp=False, end="\r")
        step = first if i == 0 else each
        yield Wait(step, "graphs")
        at += step
    yield Say(bar(len(order), len(order), at, label), stamp=False)
