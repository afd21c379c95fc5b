"""The pseudo-terminal of the tests itself: a program under it must not be able to tell it from a real one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from terminal import CTRL_C, Session

PROGRAM = """
import os, signal, sys
print("tty", sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(2), file=sys.stderr)
signal.signal(signal.SIGWINCH, lambda *_: print("now", os.get_terminal_size(2).columns, file=sys.stderr, flush=True))
try:
    while True:
        print("got", repr(input("> ")), file=sys.stderr)
except KeyboardInterrupt:
    print("\\x1b[31minterrupted\\x1b[0m", file=sys.stderr)
    sys.exit(130)
"""
ARGV = (sys.executable, "-c", PROGRAM)


def test_typing_resizing_and_an_interrupt_arrive() -> None:
    with Session(ARGV, size=(80, 10)) as session:
        session.expect(r"tty True True True os.terminal_size\(columns=80, lines=10\)")
        session.line("hello")
        session.expect(r"got 'hello'")
        session.line("hello")
        session.expect(r"got 'hello'")  # the second one, not the first again
        session.resize(60, 10)
        session.expect(r"now 60")
        session.send(CTRL_C)
        session.see(r"interrupted$")
        assert session.wait() == 130
        rows = session.screen.splitlines()
        row = next(number for number, text in enumerate(rows) if "interrupted" in text)
        assert session.cell[row][rows[row].index("interrupted")].fg == "red"


def test_rows_that_leave_the_screen_stay_in_the_scrollback() -> None:
    argv = (sys.executable, "-c", "for i in range(100): print('line', i)")
    with Session(argv, size=(40, 5)) as session:
        assert session.wait() == 0
        assert [row for row in session.scrollback.splitlines() if row] == [f"line {i}" for i in range(100)]
        assert "line 50" not in session.screen


def test_stdout_may_go_to_a_file_as_in_a_shell(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import sys; print('out', sys.stdout.isatty()); print('err', file=sys.stderr)")
    with Session(argv, stdout=tmp_path / "out") as session:
        session.expect("err")
        assert session.wait() == 0
    assert (tmp_path / "out").read_text() == "out False\n"
    assert "out" not in session.text


def test_a_program_that_ends_or_hangs_does_not_hang_us() -> None:
    with Session((sys.executable, "-c", "print('bye')")) as session, pytest.raises(AssertionError, match="ended"):
        session.expect("never", timeout=30)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    )
    with Session((sys.executable, "-c", stubborn)) as session:
        session.expect("up")
        with pytest.raises(AssertionError, match="time is up"):
            session.expect("never", timeout=0.1)
    assert session.process.returncode == -9
