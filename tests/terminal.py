"""A real pseudo-terminal with a person at it: start a program, type, and look at the screen that it draws.

The program gets a controlling terminal of its own, so that Ctrl-C is a SIGINT of the kernel, a resize a SIGWINCH, and
`isatty` true. What it writes goes through a terminal emulator (pyte); its questions (cursor position) are answered.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyte

OPSAGENT = (sys.executable, "-c", "from opsagent.cli import main; main()")
"""The argv that starts the program under test; add the verb and its words."""
CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"
NOT_INHERITED = frozenset({"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"})
"""Variables of our own surroundings that would change what a program draws."""
TAKE_TERMINAL = 'tty=$1; shift; exec 0<>"$tty" 2>&0'
"""A leader of a session that opens a terminal has it as its controlling one: no code of ours between fork and exec."""
AND_BE = '; exec env --default-signal=INT,QUIT "$@"'
"""A test run that was started in the background has interrupts ignored, and so would everything that it starts."""
_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # cursor, colour, erase
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)


class _Screen(pyte.HistoryScreen):
    """The emulator's screen; what it answers to the program's questions goes back through the terminal."""

    def __init__(self, columns: int, lines: int, answer: Any) -> None:
        super().__init__(columns, lines, history=100_000)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Session:
    """A program at a terminal. Use it in a `with`: the program and its children are gone afterwards.

    `env` is added to our own environment; None removes a variable. `size` is (columns, lines). `stdout` sends the
    program's standard output to a file instead of the terminal (stdin and stderr stay on it), as a shell's `>` does.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str | None] | None = None, size: tuple[int, int] = (100, 30), *,
        cwd: Path | None = None, stdout: Path | None = None,
    ) -> None:  # fmt: skip
        self._changed = threading.Condition()
        self._bytes = bytearray()
        self._expected = 0
        self._ended = False
        self._fault: Exception | None = None
        self._screen = _Screen(*size, self._write)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        self._set_size(*size)
        surroundings = {k: v for k, v in os.environ.items() if k not in NOT_INHERITED}
        wanted = {**surroundings, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}
        with contextlib.ExitStack() as files:
            out: Any = files.enter_context(stdout.open("wb")) if stdout else subprocess.DEVNULL
            start = TAKE_TERMINAL + ("" if stdout else " 1>&0") + AND_BE
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", start, "sh", os.ttyname(slave), *argv], stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.DEVNULL, cwd=cwd, start_new_session=True,
                env={k: v for k, v in wanted.items() if v is not None},
            )  # fmt: skip
        threading.Thread(target=self._keep_open, args=(slave,), daemon=True).start()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # --- what the person does ------------------------------------------------------------------------------------

    def send(self, text: str) -> None:
        """Type the text as it is; Enter is `\\r` (ENTER), an interrupt CTRL_C."""
        self._write(text)

    def line(self, text: str) -> None:
        """Type the text and press Enter."""
        self._write(text + ENTER)

    def resize(self, columns: int, lines: int) -> None:
        """Another window size; the program gets its SIGWINCH."""
        with self._changed:
            self._screen.resize(lines, columns)
            self._set_size(columns, lines)

    # --- what the person sees ------------------------------------------------------------------------------------

    @property
    def screen(self) -> str:
        """What stands on the screen now, one line of text per row, without the blanks at the ends."""
        with self._changed:
            return "\n".join(row.rstrip() for row in self._screen.display).rstrip()

    @property
    def scrollback(self) -> str:
        """Everything that can be seen by scrolling up: the rows that left the screen at its top, then the screen."""
        with self._changed:
            rows = ["".join(row[x].data for x in range(self._screen.columns)) for row in self._screen.history.top]
            return "\n".join(row.rstrip() for row in [*rows, *self._screen.display]).rstrip()

    @property
    def cell(self) -> Any:
        """pyte's buffer: `cell[row][column]` has `.data`, `.fg`, `.bold` …"""
        return self._screen.buffer

    @property
    def cursor_hidden(self) -> bool:
        return bool(self._screen.cursor.hidden)

    @property
    def raw(self) -> bytes:
        """Every byte that the program wrote to the terminal."""
        with self._changed:
            return bytes(self._bytes)

    @property
    def text(self) -> str:
        """Everything that was ever written, in order, without control sequences."""
        return _SEQUENCES.sub("", self.raw.decode("utf-8", "replace")).replace("\r", "")

    def expect(self, pattern: str, timeout: float = 120.0) -> re.Match[str]:
        """Wait until the program has written the pattern *after* what the last `expect` found."""

        def found() -> re.Match[str] | None:
            return re.compile(pattern, re.MULTILINE).search(self.text, self._expected)

        match = self._wait(found, pattern, timeout)
        self._expected = match.end()
        return match

    def see(self, pattern: str, timeout: float = 120.0) -> re.Match[str]:
        """Wait until the pattern stands on the screen (`^` and `$` are those of a row)."""
        return self._wait(lambda: re.search(pattern, self.screen, re.MULTILINE), pattern, timeout)

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for the program's end; its exit code (negative: the signal that ended it). All output has been read."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code

    def close(self) -> None:
        """End the program and what it started: asked first (SIGHUP, as a closed window does), then at once."""
        for number, patience in ((signal.SIGHUP, 2.0), (signal.SIGKILL, 10.0)):
            if self.process.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)  # its own session: the group is the program's and nobody else's
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        self._reader.join(5.0)
        with contextlib.suppress(OSError):
            os.close(self._master)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- underneath ----------------------------------------------------------------------------------------------

    def _wait(self, found: Any, pattern: str, timeout: float) -> re.Match[str]:
        until = time.monotonic() + timeout
        while True:
            with self._changed:
                ended = self._ended
            match: re.Match[str] | None = found()
            if match is not None:
                return match
            left = until - time.monotonic()
            if ended or left <= 0 or self._fault:
                why = (
                    f"the screen broke: {self._fault!r}"
                    if self._fault
                    else "the program ended"
                    if ended
                    else "time is up"
                )
                raise AssertionError(f"{why} while waiting for {pattern!r}; the screen:\n{self.screen}")
            with self._changed:
                self._changed.wait(min(left, 0.2))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # EIO: the last one who had the terminal open is gone
                data = b""
            with self._changed:
                if not data:
                    self._ended = True
                    self._changed.notify_all()
                    return
                self._bytes += data
                try:
                    self._stream.feed(data)
                except Exception as error:  # kept for whoever waits: a thread's traceback helps nobody
                    self._fault = error
                self._changed.notify_all()

    def _keep_open(self, slave: int) -> None:
        """Until the program has opened the terminal itself: with nobody at it, reading from it would end at once."""
        while not self._bytes and self.process.poll() is None:
            time.sleep(0.01)
        os.close(slave)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._master, text.encode())

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
