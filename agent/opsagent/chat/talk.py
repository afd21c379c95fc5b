"""The chat itself: what the person says goes to the model, its calls are made, its proposals are asked about.

Read `respond`, then `one_call`. A proposal's way is in conduct.py, what works without a model in commands.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent.chat.ground import Ground
from opsagent.chat.proposal import PROPOSE, ProposeRunArgs
from opsagent.chat.record import Opened, Settings, calls_ended
from opsagent.chat.rules import compiled, opening
from opsagent.chat.view import View
from opsagent.conversation import Conversation
from opsagent.execute import Outcome, Rejected, execute, prepare
from opsagent.fence import fence
from opsagent.loop import turn
from opsagent.protocols import Model, ToolCall
from opsagent.report.model import StatusReport
from opsagent.run import Run, Watcher
from opsagent.runbook.model import Runbook
from opsagent.session import Session, Wish
from opsagent.signals import Signal
from opsagent_tools.errors import ExitCode, OpsError

ROUNDS = 24
"""Answers of the model to one thing that the person said, calls included."""
CANCELLED = "the person cancelled this"
READ_ONLY = "a chat only reads: propose_run is the way to change a host"


@dataclass
class Chat:
    """A chat that is open. `talk` is None without a model."""

    session: Session
    ground: Ground
    settings: Settings
    view: View
    ask: Callable[[str], str]
    """Asks the person one line; raises EOFError or KeyboardInterrupt."""
    watcher: Callable[[Wish], Watcher]
    """What follows a run: the live view, or plain lines."""
    interactive: bool = False
    talk: Conversation | None = None
    books: Mapping[str, Runbook] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    """Runs of this chat, oldest first: id → folder."""
    approve: str = ""
    """`ask`, `declared`, `never`; '' for the default of the place and the terminal."""
    report: StatusReport | None = None
    """Of the run that was made last in this process."""
    last_code: int = 0
    """Exit code of the last run or the last thing that went wrong; 0 after something that went well."""
    planned: dict[str, Any] = field(default_factory=dict)
    """What /plan asked last, for the next /plan that says less."""
    _asides: list[str] = field(default_factory=list)

    @property
    def run(self) -> Run:
        return self.session.run

    @property
    def model(self) -> Model:
        return self.session.model

    @property
    def id(self) -> str:
        return self.session.run.id

    def aside(self, text: str) -> None:
        """Tell the model with the next thing that the person says what happened without it."""
        if self.talk is not None:
            self._asides.append(text)
            self.run.emit("note", kind="chat.aside", text=text)

    def said(self, text: str) -> str:
        """What the model reads of the person's words: secrets out, and what happened meanwhile before them."""
        clean, hits = self.run.journal.redactor.text(text)
        if hits:
            self.view.say("A secret in your text was taken out before it was sent or stored.", "yellow")
        told, self._asides = self._asides, []
        return "\n\n".join([*told, clean])


def chat_of(opened: Opened, view: View, *, ask: Callable[[str], str], watcher: Callable[[Wish], Watcher],
            interactive: bool) -> Chat:  # fmt: skip
    """Put a chat together around its record."""
    chat = Chat(
        opened.session, opened.ground, opened.settings, view, ask, watcher, interactive,
        books=compiled(opened.ground.folder), runs=opened.runs, approve=opened.settings.approve,
    )  # fmt: skip
    if opened.settings.llm:
        first = [{"role": "system", "content": opening(opened.ground, list(chat.books.values()))}]
        chat.talk = Conversation(chat.run, chat.model, opening=first)
        chat._asides = pending_asides(chat.run)
        if hasattr(chat.model, "on_text"):
            chat.model.on_text = view.piece
    return chat


def pending_asides(run: Run) -> list[str]:
    """What the model was not told yet when the chat's last process ended."""
    found: list[str] = []
    for event in run.journal.events():
        if event.type == "model.request":
            found = []
        elif event.type == "note" and event.data.get("kind") == "chat.aside":
            found.append(str(event.data["text"]))
    return found


def respond(chat: Chat, text: str) -> None:
    """One thing that the person said, to the end of the answer. Errors are shown and the chat goes on."""
    talk = chat.talk
    assert talk is not None
    talk.fresh()
    talk.say(chat.said(text))
    try:
        _rounds(chat, talk)
        chat.last_code = chat.report.exit_code if chat.report else 0
    except KeyboardInterrupt:
        chat.view.dropped()
        talk.cancelled(CANCELLED)
        chat.run.emit("note", kind="chat.cancelled")
        chat.view.say("  cancelled", "yellow")
    except (OpsError, Signal) as error:
        _broken(chat, talk, error)


def _rounds(chat: Chat, talk: Conversation) -> None:
    for _round in range(ROUNDS):
        with chat.view.waiting(chat.model.name):
            reply = turn(chat.run, chat.model, talk)
        chat.view.answer(reply.text)
        if reply.finish == "length":
            chat.view.say("  (cut at the token limit)", "yellow")
            if reply.calls:
                talk.say("Your answer was cut at the token limit, so none of its calls was made. Answer shorter.")
                continue
        if not reply.calls:
            return
        for call in reply.calls:
            talk.answer(call, one_call(chat, talk, call))
    talk.cancelled(f"stopped by the program after {ROUNDS} answers in a row")
    chat.view.say(f"  stopped after {ROUNDS} answers in a row; say how to go on", "yellow")


def one_call(chat: Chat, talk: Conversation, call: ToolCall) -> dict[str, Any]:
    """Make one call of the model and return what it reads of it."""
    from opsagent.chat.conduct import propose

    run = chat.run
    try:
        ready = prepare(run, call)
        talk.breaker(ready.call)
    except Rejected as error:
        event = run.emit("model.rejected", what=error.what, hint=error.hint, tool=call.name)
        talk.rejected(error)
        return Outcome(False, event.id, error=error.what, hint=error.hint).message()
    if ready.call.tool == PROPOSE.name:
        assert isinstance(ready.args, ProposeRunArgs)
        return propose(chat, ready.args)
    return {**(outcome := read(chat, call, ready)).message(), **({"hint": READ_ONLY} if outcome.refused else {})}


def read(chat: Chat, call: ToolCall, ready: Any = None) -> Outcome:
    """One call through the chat's gate and journal. Ctrl-C ends the call, on the record, and then the answer."""
    run = chat.run
    ready = ready or prepare(run, call)
    try:
        with chat.view.waiting(f"{ready.call.tool} on {ready.call.host}"):
            outcome = execute(run, ready)
    except KeyboardInterrupt:
        calls_ended(run, CANCELLED)
        raise
    if chat.talk is not None:
        chat.talk.made(outcome)
    return outcome


def _broken(chat: Chat, talk: Conversation, error: OpsError | Signal) -> None:
    """The endpoint, the journal or the model gave out: say so; the conversation stays usable."""
    chat.view.dropped()
    problem = error if isinstance(error, OpsError) else OpsError(str(error), hint=getattr(error, "hint", ""))
    chat.last_code = int(getattr(error, "exit_code", ExitCode.FAILED))
    chat.run.emit("error", what=problem.what, where=problem.where, hint=problem.hint)
    talk.cancelled(f"the answer ended here: {chat.run.journal.redactor.clean(problem.what)}")
    chat.view.error(problem)


def told(what: str, body: str) -> str:
    """An aside with something that a machine printed in it."""
    return f"({what})\n" + fence(body, source="program") if body else f"({what})"
