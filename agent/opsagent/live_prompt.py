"""A question at the terminal while a run waits: on stderr, read from the terminal, and Ctrl-C is an answer of its own."""

from __future__ import annotations

import contextlib
import signal
import sys
import termios
from collections.abc import Iterator


def ask(question: str) -> str:
    """One line from the person at the terminal; the question goes to stderr, nothing ever to stdout.

    What was typed before the question stood there is thrown away: it was no answer to it. Raises EOFError at the end of
    the input, KeyboardInterrupt for Ctrl-C: the run is interrupted with the question open, and resume asks it again.
    """
    with contextlib.suppress(OSError, ValueError, termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    sys.stderr.write(f"{question}: ")
    sys.stderr.flush()
    with _interruptible():
        line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """A run's own handler waits for a safe point; while a person is asked, nothing happens and any point is safe."""
    try:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
    except ValueError:  # not in the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
