"""Output in bounded memory: the head and the tail of a stream of any length."""

from __future__ import annotations

from collections import deque


class Clip:
    """Keeps the first and the last `keep // 2` bytes of what is added, and counts everything."""

    def __init__(self, keep: int) -> None:
        self.total = 0
        self._half = max(keep // 2, 1)
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(bytes(data[-self._half :]))
        self._tail_bytes += len(self._tail[-1])
        while self._tail_bytes - len(self._tail[0]) >= self._half:
            self._tail_bytes -= len(self._tail.popleft())

    def data(self) -> bytes:
        """The bytes that were kept; a line in their middle says how many were left out."""
        tail = b"".join(self._tail)[-self._half :]
        missing = self.total - len(self._head) - len(tail)
        note = f"\n[… {missing} bytes left out …]\n".encode() if missing > 0 else b""
        return bytes(self._head) + note + tail

    def text(self) -> str:
        """UTF-8 with U+FFFD for what is not; says in its middle how many bytes were left out."""
        tail = b"".join(self._tail)[-self._half :]
        missing = self.total - len(self._head) - len(tail)
        if missing <= 0:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head_text = self._head.decode("utf-8", "ignore" if self._cut_at_end() else "replace")
        return f"{head_text}\n[… {missing} bytes left out …]\n{_from_boundary(tail).decode('utf-8', 'replace')}"

    def _cut_at_end(self) -> bool:
        """Whether only the last character of the head is incomplete (our cut, not the program's fault)."""
        try:
            self._head.decode("utf-8")
        except UnicodeDecodeError as error:
            return error.reason == "unexpected end of data"
        return False


def _from_boundary(data: bytes) -> bytes:
    """Without the continuation bytes of a character that our cut split (at most three)."""
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:]
