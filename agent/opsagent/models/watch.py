"""A stream with a watch on it: patient for the first piece, impatient when it stalls in the middle."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from opsagent.models.faults import Fault

T = TypeVar("T")


def watched(
    items: Iterable[T], *, first_s: float, stall_s: float, close: Callable[[], None] = lambda: None
) -> Iterator[T]:
    """The items, read by a thread of their own. Raises Fault (interrupted) after a silence; errors of the source pass.

    `first_s` seconds may pass before the first item (a long prompt is being read), `stall_s` between two. `close` ends
    the source when nobody waits for it any more.
    """
    pieces: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue()

    def read() -> None:
        try:
            for item in items:
                pieces.put(("item", item))
            pieces.put(("end", None))
        except BaseException as error:  # it is raised again where somebody waits
            pieces.put(("error", error))

    threading.Thread(target=read, name="stream", daemon=True).start()
    patience = first_s
    try:
        while True:
            try:
                kind, piece = pieces.get(timeout=patience)
            except queue.Empty:
                raise Fault("interrupted", f"the stream was silent for {patience:.0f} s") from None
            if kind == "end":
                return
            if kind == "error":
                assert isinstance(piece, BaseException)
                raise piece
            patience = stall_s
            yield piece  # type: ignore[misc]
    finally:
        close()
