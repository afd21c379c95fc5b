"""What a chat shows: answers as they come, block by block; calls and their results as lines; a sign while it waits.

Everything from models and hosts is written out, never obeyed. Without a terminal the same words come as plain text.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from opsagent.call import Call
from opsagent.fence import neutral
from opsagent.protocols import Event
from opsagent_tools.errors import OpsError
from opsagent_tools.tool import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

FENCE = re.compile(r"^\s{0,3}(```|~~~)")


@dataclass
class Blocks:
    """Text that arrives in pieces, given back in blocks that can be drawn for themselves: paragraphs, lists, fences."""

    _lines: list[str] = field(default_factory=list)
    _rest: str = ""
    _fenced: bool = False

    def feed(self, piece: str) -> list[str]:
        """The blocks that this piece completes."""
        done: list[str] = []
        *lines, self._rest = (self._rest + piece).split("\n")
        for line in lines:
            if FENCE.match(line):
                self._fenced = not self._fenced
            self._lines.append(line)
            if not self._fenced and not line.strip():
                done += self.end_block()
        return done

    def end_block(self) -> list[str]:
        text = "\n".join(self._lines).strip("\n")
        self._lines = []
        return [text] if text.strip() else []

    def end(self) -> list[str]:
        """What is left at the end of the answer."""
        if self._rest:
            self._lines.append(self._rest)
        self._rest, self._fenced = "", False
        return self.end_block()


@dataclass
class View:
    """Writes to one stream. Also the watcher of the chat's own calls."""

    out: TextIO
    clean: Callable[[str], str] = lambda text: text
    """Takes secrets out: the journal's redactor, once there is one."""
    _blocks: Blocks = field(default_factory=Blocks)
    _streamed: bool = False
    _console: Console | None = None
    _status: Status | None = None
    _waiting: str = ""

    @property
    def rich(self) -> bool:
        return self.out.isatty()

    @property
    def console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self.out, highlight=False)
        return self._console

    # --- lines ---------------------------------------------------------------------------------------------------

    def title(self, text: str) -> None:
        self.say()
        self.line(f"── {text} ──", "bold")

    def say(self, text: str = "", style: str = "", *, hang: int = 0) -> None:
        """Lines of ours or of a host; nothing in them is markup. On a terminal long ones are wrapped at words.

        What is wrapped goes on in column `hang`, or two behind the line's own beginning.
        """
        text = neutral(self.clean(text))
        if not self.rich:
            self.out.write(text + "\n")
            self.out.flush()
            return
        from rich.text import Text

        for line in text.split("\n"):
            for part in wrapped(line, self.console.width, hang):
                self.console.print(Text(part, style=style), soft_wrap=True)

    def line(self, text: str, style: str = "") -> None:
        """The same on one line, whatever a host put into it."""
        self.say(text.replace("\n", " "), style)

    def error(self, error: OpsError) -> None:
        place = f"{error.where}: " if error.where else ""
        self.say(f"✘ {place}{error.what}", "red")
        if error.hint:
            self.say(f"  {error.hint}")

    # --- an answer -----------------------------------------------------------------------------------------------

    def piece(self, text: str) -> None:
        """A piece of an answer while it comes."""
        self._streamed = True
        for block in self._blocks.feed(text):
            self._draw(block)

    def answer(self, text: str) -> None:
        """The end of an answer: what was not shown yet."""
        for block in self._blocks.end() if self._streamed else [text]:
            self._draw(block)
        self._streamed = False

    def dropped(self) -> None:
        """The answer broke off: what is left of it is not shown."""
        self._blocks, self._streamed = Blocks(), False

    def _draw(self, block: str) -> None:
        text = neutral(self.clean(block))
        if not text.strip():
            return
        if not self.rich:
            self.out.write(text + "\n\n")
            self.out.flush()
            return
        from rich.console import Console
        from rich.markdown import Markdown
        from rich.text import Text

        drawn = Console(  # apart from the one that shows a sign of waiting
            file=io.StringIO(), force_terminal=True, width=self.console.width, highlight=False,
            color_system="standard" if self.console.color_system else None,
        )  # fmt: skip
        drawn.print(Markdown(text, hyperlinks=False))
        assert isinstance(drawn.file, io.StringIO)
        lines = Text.from_ansi(drawn.file.getvalue()).split("\n")
        shown = [number for number, line in enumerate(lines) if line.plain.strip()]
        for line in lines[shown[0] : shown[-1] + 1] if shown else []:
            self.console.print(line, soft_wrap=True)
        self.console.print()

    # --- waiting -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """A sign that something is under way; only on a terminal."""
        if not self.rich:
            yield
            return
        self._waiting = neutral(what)
        with self.console.status(self._words(), spinner="dots") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None

    def _words(self, more: str = "") -> Any:
        from rich.text import Text

        return Text(f"{self._waiting}{' · ' + more if more else ''} · Ctrl-C cancels", style="dim", overflow="ellipsis",
                    no_wrap=True)  # fmt: skip

    # --- the chat's own calls ------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        handler = getattr(self, "_" + event.type.replace(".", "_"), None)
        if handler is not None:
            handler(event, event.data)

    def on_progress(self, call: Call, progress: Progress) -> None:
        if self._status is not None:
            self._status.update(self._words(neutral(f"{call.tool}: {progress.text}"[:60].replace("\n", " "))))

    def _call_intent(self, _event: Event, data: dict[str, Any]) -> None:
        call = data["call"]
        self.line(f"  · {call['tool']} on {call['host']}  {brief(call['args'])}".rstrip(), "dim")

    def _call_finished(self, event: Event, data: dict[str, Any]) -> None:
        summary = (data.get("result") or {}).get("summary") or ("done" if data["ok"] else "failed")
        self.line(f"    {'→' if data['ok'] else '✘'} {summary}  [{event.id}]", "" if data["ok"] else "yellow")

    def _call_failed(self, event: Event, data: dict[str, Any]) -> None:
        self.line(f"    ✘ {data['what']}  [{event.id}]", "yellow")

    def _approval_decided(self, event: Event, data: dict[str, Any]) -> None:
        if data["answer"] != "approve":
            self.line(f"    ✘ refused by {data['by']}: {data['reason']}  [{event.id}]", "yellow")

    def _model_rejected(self, event: Event, data: dict[str, Any]) -> None:
        self.line(f"    ✘ {data['what']}  [{event.id}]", "dim")

    def _model_retry(self, _event: Event, data: dict[str, Any]) -> None:
        self.dropped()
        wait = f", again in {data['wait_s']:.0f} s" if data.get("wait_s") else ""
        self.line(f"  … {data['why']}{wait}", "dim")


def wrapped(line: str, width: int, hang: int = 0) -> list[str]:
    """A line in pieces of at most `width` characters, broken at spaces where there are some."""
    if len(line) <= width:
        return [line]
    indent = " " * (hang or len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, max(width, len(indent) + 20), subsequent_indent=indent, break_on_hyphens=False,
                         break_long_words=False, expand_tabs=False)  # fmt: skip


def brief(args: dict[str, Any]) -> str:
    """The arguments that say most, on one line."""
    found: list[str] = []
    for key in ("argv", "model", "path", "unit", "url", "flags", "want_context", "want_concurrency"):
        value = args.get(key)
        if value in (None, "", []):
            continue
        if isinstance(value, dict):
            value = value.get("path") or ""
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        found.append(f"{key.replace('want_', '')} {text}" if key.startswith("want_") else text)
    return " ".join(found).replace("\n", " ")[:160]
