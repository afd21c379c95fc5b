"""The live view of a run on a terminal: what is finished is printed for good, below it a few lines change.

It never decides and never fails a run: whatever goes wrong in it, the run goes on with plain lines. While a person is
asked, the changing lines are gone and the terminal is theirs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import termios
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from opsagent.budget import Budget
from opsagent.call import Call
from opsagent.live import PlainLines, ended, headline
from opsagent.live_draw import Foot, Used, changing, heading, stays
from opsagent.live_scene import Line, Scene
from opsagent.live_work import words
from opsagent.protocols import Event
from opsagent_tools.clock import Clock, FastClock
from opsagent_tools.tool import Progress

if TYPE_CHECKING:
    from opsagent.run import Run
    from opsagent.session import Wish

FRAMES_PER_S = 6.0


@dataclass
class LiveView:
    """Follows a run on the terminal `out`. `asks`: whether a person at this terminal answers what needs approval."""

    wish: Wish
    out: TextIO
    asks: bool = False
    _run: Run | None = None
    _clock: Clock = field(default_factory=FastClock)
    _plain: PlainLines | None = None
    """Set once the view has failed: the rest of the run is told in plain lines."""
    _live: Live | None = None
    _mode: str = ""
    _echo: list[Any] | None = None
    """The terminal's modes before we switched its echo off."""

    def __post_init__(self) -> None:
        book = self.wish.runbook
        self._scene = Scene.of([(step.id, step.title) for step in book.steps], self._expected)
        self._lock = threading.Lock()
        """Held while the scene is changed or read."""
        self._drawing = threading.RLock()
        """Held while anything is written, from working out where the cursor must go until it is there."""
        self._over = threading.Event()
        self._console = Console(file=cast("IO[str]", Frames(self.out)), highlight=False, markup=False, emoji=False)

    # --- what the run tells --------------------------------------------------------------------------------------

    def attach(self, run: Run) -> None:
        self._run, self._clock = run, run.clock

    def on_event(self, event: Event) -> None:
        if self._plain is not None:
            self._plain.on_event(event)
            return
        try:
            self._on_event(event)
        except Exception as error:
            self._give_up(error)
            self._plain = PlainLines(self.wish, self.out)
            self._plain.on_event(event)

    def on_progress(self, call: Call, progress: Progress) -> None:
        if self._plain is not None:
            self._plain.on_progress(call, progress)
            return
        try:
            with self._lock:
                self._scene.progress(call, progress, self._clock.now())
        except Exception as error:  # a fault of ours must not look like one of the tool
            self._give_up(error)
            self._plain = PlainLines(self.wish, self.out)

    def _on_event(self, event: Event) -> None:
        asked = event.type == "approval.requested" and self.asks
        with self._lock:
            if event.type == "run.resumed" and self._run is not None:
                progress = self._run.progress
                self._scene.went_on(progress.left, progress.step, self._clock.now())
            self._scene.apply(event, self._clock.now())
            if asked:
                self._scene.flush()
            lines = self._scene.take()
        over = event.type == "run.finished"
        if asked or over:
            self.pause()
        if event.type in ("run.started", "run.resumed"):
            self._mode = str(event.data.get("mode") or "")
            self.print(heading(headline(self.wish, event), self.width))
        self.print([row for line in lines for row in stays(line, self.width)])
        if over:
            state = self._run.journal.state if self._run is not None else None
            texts = ended(event.data, state, self._mode, [line.text for line in lines])
            self.print([row for text in texts for row in stays(Line(text, "ask"), self.width)])
        elif not asked and not self._scene.asking:
            self._go_on()

    # --- the terminal --------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        return max(20, self._console.width - 1)

    def print(self, rows: Sequence[Text]) -> None:
        """Above the changing lines, which are drawn afresh in the same frame."""
        if not rows:
            return
        with self._drawing, self._console:
            for row in rows:
                self._console.print(row, no_wrap=True, overflow="crop", crop=True)
            if self._live is not None:
                self._live.refresh()

    def _go_on(self) -> None:
        if self._live is not None:
            return
        self._quiet()
        atexit.register(self.pause)
        with self._drawing:
            self._live = Live(
                get_renderable=self._frame, console=self._console, auto_refresh=False, transient=True,
                redirect_stdout=False, redirect_stderr=False, vertical_overflow="crop",
            )  # fmt: skip
            self._live.start(refresh=True)
        self._over = threading.Event()
        threading.Thread(target=self._keep_drawing, args=(self._over,), daemon=True).start()
        if sys.stderr is self.out:
            sys.stderr = cast("TextIO", Above(self))

    def pause(self) -> None:
        """Take the changing lines away and give the terminal back; the next event brings them again."""
        atexit.unregister(self.pause)
        self._over.set()
        if isinstance(sys.stderr, Above):
            sys.stderr = self.out
        with self._drawing:
            live, self._live = self._live, None
            if live is not None:
                live.stop()
        self._loud()

    def _keep_drawing(self, over: threading.Event) -> None:
        """Rich's own thread would draw between a line that is printed and the frame that belongs to it: see `_drawing`."""
        while not over.wait(1 / FRAMES_PER_S):
            with self._drawing:
                if self._live is not None and not over.is_set():
                    self._live.refresh()

    def _frame(self) -> RenderableType:
        """The changing lines as they are now (called by the drawing thread too)."""
        try:
            with self._lock:
                rows = changing(
                    self._scene, self._foot(), self._clock.now(), self.width, max(1, self._console.height - 1)
                )
        except Exception as error:  # a fault of the drawing: say it, once a frame, instead of a traceback
            return Text(f" the live view cannot be drawn ({type(error).__name__}); the run goes on")
        return Group(*rows)

    def _give_up(self, error: Exception) -> None:
        with contextlib.suppress(Exception):
            self.pause()
        self.out.write(f"the live view failed ({type(error).__name__}: {error}); going on with plain lines\n")

    def _quiet(self) -> None:
        """No echo of keys while lines change in place: an Enter would push them up and leave their copies behind."""
        with contextlib.suppress(OSError, ValueError, termios.error):
            tty = sys.stdin.fileno()
            if self._echo is not None or not os.isatty(tty) or os.tcgetpgrp(tty) != os.getpgrp():
                return  # in the background a change of the terminal's modes would stop us
            self._echo = termios.tcgetattr(tty)
            modes = termios.tcgetattr(tty)
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(tty, termios.TCSANOW, modes)

    def _loud(self) -> None:
        modes, self._echo = self._echo, None
        if modes is not None:
            with contextlib.suppress(OSError, ValueError, termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)

    # --- what the foot and the times come from -------------------------------------------------------------------

    def _foot(self) -> Foot:
        run = self._run
        if run is None:
            return Foot("")
        return Foot(run.id, used(run), f"opsagent resume {run.id}", run.stopped())

    def _expected(self, host: str, tool: str) -> float | None:
        from opsagent.learning import expected_seconds

        return expected_seconds(self._run.history.get(host, {}), tool) if self._run is not None else None


def used(run: Run) -> list[Used]:
    """The budgets of a run: time, calls, and what a model costs when there is one."""
    spent = run.journal.state.usage
    budget = run.budget if isinstance(run.budget, Budget) else None
    limits = budget.limits if budget is not None else None
    tokens = (spent.tokens_in or 0) + (spent.tokens_out or 0)
    found = [
        Used("", budget.wall_s if budget is not None else spent.wall_s, limits.wall_s if limits else 0, time=True),
        Used("calls", spent.calls, limits.calls if limits else 0),
    ]
    if tokens:
        found.append(Used("turns", spent.turns, limits.turns if limits else 0))
        found.append(Used("tokens", tokens, limits.tokens if limits else 0))
    return found


@dataclass
class Frames:
    """The terminal, with each write as one frame: shown at once (synchronized output), lines never wrapped by it.

    Terminals that do not know the mode ignore it. Widths that a terminal counts differently from us stay harmless.
    """

    out: TextIO

    def write(self, text: str) -> int:
        self.out.write(f"\x1b[?2026h\x1b[?7l{text}\x1b[?7h\x1b[?2026l" if text else "")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)


@dataclass
class Above:
    """What stands for stderr while lines change: what others write there (warnings, a library's log) goes above them."""

    view: LiveView
    _open: str = ""

    def write(self, text: str) -> int:
        *lines, self._open = (self._open + text).split("\n")
        self.view.print([row for line in lines for row in stays(Line(words(line)), self.view.width)])
        return len(text)

    def flush(self) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        return getattr(self.view.out, name)


def usable(out: TextIO) -> bool:
    """Whether lines can change in place there: a terminal that is not dumb and can show our characters."""
    utf8 = (getattr(out, "encoding", "") or "").lower().replace("-", "") == "utf8"
    return out.isatty() and utf8 and Console(file=out).is_interactive and Console(file=out).is_terminal
