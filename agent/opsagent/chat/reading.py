"""What the person types: edited lines at a terminal, plain lines from anything else.

At a terminal Enter sends; Alt-Enter, or a backslash at the end of the line, begins a new one. From a pipe each line is one
message; a backslash at its end joins it with the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from opsagent import xdg
from opsagent.fence import neutral

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

PROMPT = "› "
HISTORY = "chat_history"
KEEP = 1000
"""Entries of the input history."""


Clean = Callable[[str], str]
"""Takes secrets out of a line before it is kept or repeated."""


@dataclass
class PlainReader:
    """Lines of a stream that is no terminal; each is repeated on the output, so that a log of a chat can be read.

    Raises EOFError at the end.
    """

    source: TextIO
    out: TextIO
    clean: Clean = field(default=str)

    def read(self) -> str:
        text = self._line()
        while text.endswith("\\"):
            text = text[:-1] + "\n" + self._line()
        self._echo(PROMPT, text)
        return text

    def ask(self, question: str) -> str:
        answer = self._line()
        self._echo(question, answer)
        return answer

    def _echo(self, before: str, text: str) -> None:
        self.out.write(f"{before}{neutral(self.clean(text))}\n")
        self.out.flush()

    def _line(self) -> str:
        line = self.source.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


@dataclass
class TerminalReader:
    """Edited lines with a history that survives the chat. Raises EOFError at the end, KeyboardInterrupt for Ctrl-C."""

    words: Callable[[], Mapping[str, Iterable[str]]] = field(default=dict)
    """Slash commands and what can stand behind each, for the Tab key."""
    clean: Clean = field(default=str)
    _session: PromptSession[str] | None = field(default=None)

    def read(self) -> str:
        if self._session is None:
            self._session = self._make()
        return str(self._session.prompt(PROMPT, completer=self._completer()))

    def ask(self, question: str) -> str:
        from prompt_toolkit import PromptSession

        session: PromptSession[str] = PromptSession()
        return str(session.prompt(question))

    def _make(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession

        history = kept_history(xdg.state_home() / HISTORY, lambda text: self.clean(text))
        return PromptSession(
            history=history, key_bindings=bindings(), multiline=True,
            prompt_continuation=lambda width, _line, _soft: "· ".rjust(width), complete_while_typing=False,
        )  # fmt: skip

    def _completer(self) -> Any:
        from prompt_toolkit.completion import NestedCompleter

        return NestedCompleter.from_nested_dict(
            {command: {word: None for word in words} or None for command, words in self.words().items()}
        )


def bindings() -> KeyBindings:
    """Enter sends, unless a backslash asks for another line; Alt-Enter always begins one."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\") and not buffer.document.text_after_cursor:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def kept_history(path: Path, clean: Callable[[str], str]) -> Any:
    """prompt_toolkit's history in a file that only its user reads, without secrets, cut to the newest entries."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class CleanHistory(FileHistory):
        def store_string(self, string: str) -> None:
            super().store_string(clean(string))

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        path.chmod(0o600)
        _cut(path)
    except OSError:
        return InMemoryHistory()
    return CleanHistory(str(path))


def _cut(path: Path) -> None:
    """Entries begin with an empty line and a `# time`; the oldest go when there are too many."""
    entries = path.read_text(encoding="utf-8", errors="replace").split("\n# ")
    if len(entries) > 2 * KEEP:
        path.write_text("\n# " + "\n# ".join(entries[-KEEP:]), encoding="utf-8")
