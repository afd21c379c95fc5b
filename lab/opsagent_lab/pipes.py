"""Byte streams between threads: the pipe of a pipeline, and the stdin of a channel. Bounded, so that memory is."""

from __future__ import annotations

import threading
from collections.abc import Callable

LIMIT = 1 << 18


class Pipe:
    """One writer, one reader. Writing to a pipe whose reader has gone raises BrokenPipeError."""

    def __init__(self, checkpoint: Callable[[], None] = lambda: None, limit: int = LIMIT) -> None:
        self._buffer = bytearray()
        self._changed = threading.Condition()
        self._ended = False
        self._abandoned = False
        self._checkpoint = checkpoint
        self._limit = limit

    def write(self, data: bytes) -> None:
        """Append, waiting while the buffer is full."""
        view = memoryview(data)
        while view:
            with self._changed:
                while len(self._buffer) >= self._limit and not self._abandoned:
                    self._changed.wait(0.05)
                    self._checkpoint()
                if self._abandoned:
                    raise BrokenPipeError
                room = self._limit - len(self._buffer)
                self._buffer += view[:room]
                view = view[room:]
                self._changed.notify_all()

    def feed(self, data: bytes) -> int:
        """Append without waiting (for the event loop); returns how much is buffered now."""
        with self._changed:
            if not self._abandoned:
                self._buffer += data
                self._changed.notify_all()
            return len(self._buffer)

    def end(self) -> None:
        """No more will be written."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Nobody will read any more."""
        with self._changed:
            self._abandoned = True
            self._buffer.clear()
            self._changed.notify_all()

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, b'' at the end; everything with size -1. Waits for something to come."""
        parts: list[bytes] = []
        while True:
            with self._changed:
                while not self._buffer and not self._ended:
                    self._changed.wait(0.05)
                    self._checkpoint()
                cut = len(self._buffer) if size < 0 else size
                part = bytes(self._buffer[:cut])
                del self._buffer[:cut]
                self._changed.notify_all()
            if size >= 0:
                return part
            if not part:
                return b"".join(parts)
            parts.append(part)
