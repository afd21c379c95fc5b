"""The live view at a real terminal, on a small run that is played for it."""

from __future__ import annotations

import io
import re
import sys
import termios
from pathlib import Path

import pyte
import pytest
from terminal import ENTER, NOT_INHERITED, Session

from opsagent.live_view import usable

PLAYER = Path(__file__).with_name("player.py")
TESTS = str(PLAYER.parent.parent)
MARK = r"Ctrl-C ends cleanly"


def play(scene: str, seconds: float = 0.8, size: tuple[int, int] = (90, 20), **env: str) -> Session:
    return Session((sys.executable, str(PLAYER), scene, str(seconds)), {"PYTHONPATH": TESTS, **env}, size)


def kept(session: Session) -> list[str]:
    return [row for row in session.scrollback.splitlines() if row.strip()]


def frames(raw: bytes) -> list[bytes]:
    return [part + b"\x1b[?2026l" for part in raw.split(b"\x1b[?2026l")[:-1]]


def test_lines_change_in_place_and_what_is_finished_stays() -> None:
    with play("plain") as session:
        first = session.see(r"([0-9.]+)/10 GiB")
        session.send(ENTER * 3)  # somebody wants to know whether it is alive
        session.see(r"▶ look")
        assert session.cursor_hidden
        assert not termios.tcgetattr(session._master)[3] & termios.ECHO
        assert session.wait() == 0
        seen = {float(done) for done in re.findall(r"([0-9.]+)/10 GiB", session.text)}
        rows = kept(session)
        assert not session.cursor_hidden
        assert termios.tcgetattr(session._master)[3] & termios.ECHO
        raw = session.raw
    assert first
    assert len(seen) > 3
    assert [row.split()[:2] for row in rows] == [["✔", "raise"], ["✔", "look"], ["the", "report"]]
    # Fed frame by frame to another screen, the changing lines are there after each one: nothing is blank in between.
    screen = pyte.Screen(90, 20)
    stream = pyte.ByteStream(screen)
    lines = [frame for frame in frames(raw) if b"\x1b[2K" in frame or MARK.encode() in frame]
    for frame in lines[:-2]:
        stream.feed(frame)
        assert sum(MARK in row for row in screen.display) == 1
    assert b"\x1b[2K" not in re.sub(rb"\x1b\[\?2026h.*?\x1b\[\?2026l", b"", raw, flags=re.DOTALL)


def test_text_of_others_is_inert_and_clipped() -> None:
    with play("hostile") as session:
        session.see(r"\d/10 GiB")
        assert session.wait() == 0
        rows, raw = kept(session), session.raw
    assert all(bad not in raw for bad in (b"\x1b]0;", b"\x1b[H", b"\x1b[2J", "\x9b".encode(), "\u202e".encode()))
    assert [row.split()[0] for row in rows if row[1:2] == "✔"] == ["✔", "✔"]
    assert len(rows) <= 5
    assert len(raw) < 200_000


def test_what_others_write_to_stderr_stands_above_and_is_whole() -> None:
    with play("noisy") as session:
        assert session.wait() == 0
        rows = kept(session)
    said = [row.strip() for row in rows if "warning" in row]
    assert said == [f"warning {number}" for number in (0, 5, 10, 15, 20)] * 2
    assert len(rows) == len(said) + 3


def test_a_view_that_fails_does_not_fail_the_run() -> None:
    with play("broken", 0.2) as session:
        session.expect("the live view failed")
        assert session.wait() == 0
        assert {"✔ raise", "✔ look", "the report"} <= set(kept(session))


def test_another_window_size_in_the_middle() -> None:
    with play("plain", 1.6, size=(90, 20)) as session:
        session.see(r"/10 GiB")
        session.resize(40, 6)
        session.see(r"^ Ctrl-C stops;")
        assert max(len(row) for row in session.screen.splitlines()) <= 40
        session.resize(100, 24)
        session.see(MARK)
        assert session.wait() == 0
        rows = kept(session)
        assert [row.split()[:2] for row in rows if "✔" in row] == [["✔", "raise"], ["✔", "look"]]


def test_a_dumb_terminal_gets_plain_lines() -> None:
    with play("plain", 0.2, TERM="dumb") as session:
        assert session.wait() == 0
        assert b"\x1b" not in session.raw
        assert "raise" in session.text


class Stream(io.StringIO):
    """A stream that says of itself what it is told."""

    def __init__(self, tty: bool, encoding: str) -> None:
        super().__init__()
        self._tty, self._encoding = tty, encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


def test_lines_change_in_place_only_where_that_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in NOT_INHERITED:
        monkeypatch.delenv(name, raising=False)
    assert usable(Stream(True, "utf-8"))
    assert not usable(Stream(False, "utf-8"))
    assert not usable(Stream(True, "ascii"))
    for name, value in (("TTY_INTERACTIVE", "0"), ("TERM", "dumb")):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert not usable(Stream(True, "utf-8"))


def test_no_color_is_honoured() -> None:
    with play("plain", 0.4, NO_COLOR="1") as session:
        assert session.wait() == 0
        codes = {int(code or 0) for found in re.findall(rb"\x1b\[([\d;]*)m", session.raw) for code in found.split(b";")}
    assert b"\x1b[2K" in session.raw
    assert not {code for code in codes if 30 <= code <= 49 or 90 <= code <= 107}
