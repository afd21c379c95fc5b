"""`opsagent chat`: the same loop, driven by conversation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsagent.cli.candidates import host_names, scenarios
from opsagent.cli.run import MODES

if TYPE_CHECKING:
    from opsagent.chat.reading import PlainReader, TerminalReader
    from opsagent.chat.record import Opened
    from opsagent.chat.talk import Chat
    from opsagent.chat.view import View


@click.command("chat", short_help="Talk: propose a run, decide, see it made, ask what if.")
@click.option(
    "--host", "hosts", multiple=True, metavar="[ROLE=]NAME", shell_complete=host_names,
    help="A host, and the role it usually has.",
)  # fmt: skip
@click.option("--hosts", "hosts_file", default="", metavar="FILE", help="hosts.toml to use.")
@click.option("--lab", default="", metavar="SCENARIO", shell_complete=scenarios, help="Simulated hosts.")
@click.option("--llm", default="", metavar="NAME", help="Model at OPENAI_BASE_URL that talks; none without it.")
@click.option("--run-llm", default="", metavar="NAME", help="What decides inside a run (default: the autopilot).")
@click.option("--approve", type=MODES, default=None, help="Who approves inside a run (default: ask with a terminal).")
@click.option("--approve-file", default="", metavar="FILE", help="Pre-approved calls by hash.")
@click.option("--resume", "ref", default="", metavar="CHAT", help="Go on with a chat: its id, or `last`.")
def command(
    hosts: tuple[str, ...], hosts_file: str, lab: str, llm: str, run_llm: str, approve: str | None, approve_file: str,
    ref: str,
) -> int:  # fmt: skip
    """Say what you want; a run is proposed with its predicted limits, asked about, made and reported.

    The model that talks only reads. What changes a host is a run: you see it first, and inside it the gate asks as always.
    Without --llm (or OPSAGENT_LLM) nothing here understands plain language, but the slash commands work: /help lists them.
    With neither --host nor --hosts (and no hosts.toml here) it is on the lab: simulated hosts on loopback.

    \b
    Examples:
      OPENAI_BASE_URL=http://gpu4:30000/v1 OPENAI_API_KEY=EMPTY opsagent chat --llm Qwen3.6-27B --host target=gpu3
      printf '/plan /srv/models/m --host gpu3\\n/run launch\\nyes\\n' | opsagent chat --hosts hosts.toml
      opsagent chat --resume last

    Enter sends; Alt-Enter, or a backslash at the end, begins a new line. Ctrl-C cancels an answer, Ctrl-D leaves.

    Exit: 0; without a terminal the code of the last run, or of the last thing that went wrong.
    """
    from opsagent.chat.talk import chat_of
    from opsagent.chat.view import View
    from opsagent.cli.output import watcher_for
    from opsagent_tools.errors import InputError

    if ref and (hosts or hosts_file or lab):
        raise InputError("a resumed chat has its hosts already", hint="--resume goes with --llm and --approve only")
    interactive = sys.stdin.isatty() and sys.stderr.isatty()
    edited = sys.stdin.isatty() and sys.stdout.isatty()
    view = View(sys.stdout)
    opened = _opened(view, ref, hosts, hosts_file, lab, llm, run_llm, approve or "", approve_file)
    with opened.session:
        view.clean = opened.session.journal.redactor.clean
        reader = _reader(edited)
        chat = chat_of(opened, view, ask=reader.ask, watcher=watcher_for, interactive=interactive)
        if approve:
            chat.approve = approve
        _acquaint(reader, chat)
        _greet(opened, chat)
        _converse(chat, reader, edited)
    view.say(f"Go on with: opsagent chat --resume {chat.id}")
    return 0 if edited else chat.last_code


def _opened(
    view: View, ref: str, hosts: tuple[str, ...], hosts_file: str, lab: str, llm: str, run_llm: str, approve: str,
    approve_file: str,
) -> Opened:  # fmt: skip
    """A new chat on the hosts that were asked for, or an old one. Raises InputError."""
    from opsagent.chat import record
    from opsagent.chat.ground import lab_ground, real_ground
    from opsagent.places import wants_lab
    from opsagent_tools.errors import InputError

    llm = llm or os.environ.get("OPSAGENT_LLM", "")
    llm = "" if llm == "autopilot" else llm
    if ref:
        return record.go_on(ref, llm=llm, watcher=view, notice=view.say)
    if lab and (hosts or hosts_file):
        raise InputError("--lab and --host do not go together", hint="the lab brings its own hosts")
    here = Path.cwd()
    simulated = bool(lab) or wants_lab(hosts, hosts_file, here)
    ground = lab_ground(lab, here) if simulated else real_ground(hosts, hosts_file, here)
    settings = record.Settings(
        llm=llm, run_llm=run_llm or "autopilot", approve=approve, approve_file=approve_file, hosts=hosts,
        hosts_file=hosts_file, lab=_scenario(lab) if simulated else "", folder=str(here),
    )  # fmt: skip
    try:
        return record.begin(settings, ground, watcher=view, notice=view.say)
    except BaseException:
        ground.places.close()
        raise


def _scenario(lab: str) -> str:
    """The scenario as a later process finds it again."""
    from opsagent.chat.ground import SCENARIO

    return str(Path(lab).absolute()) if lab.endswith(".toml") else lab or SCENARIO


def _reader(edited: bool) -> PlainReader | TerminalReader:
    from opsagent.chat.reading import PlainReader, TerminalReader

    if edited:
        return TerminalReader()
    return PlainReader(sys.stdin, sys.stdout)


def _acquaint(reader: PlainReader | TerminalReader, chat: Chat) -> None:
    """What is kept of a line has no secrets in it; the Tab key knows the chat's commands, runbooks, hosts and runs."""
    from opsagent.chat.commands import without_secrets, words
    from opsagent.chat.reading import TerminalReader

    reader.clean = lambda text: without_secrets(chat, text)
    if isinstance(reader, TerminalReader):
        reader.words = lambda: words(chat)


def _greet(opened: Opened, chat: Chat) -> None:
    from opsagent.chat.commands import NO_MODEL

    view, places = chat.view, chat.ground.places
    mark = f' · SIMULATED lab "{places.lab_name}"' if places.simulated else ""
    view.say(f"chat {chat.id} · hosts {', '.join(chat.ground.names)}{mark}", "bold")
    if chat.talk is None:
        view.say(NO_MODEL)
    else:
        view.say("What you type is sent to it too; secrets that can be told by their shape are taken out first.")
    view.say("A chat only reads; what changes a host is a run, and you are asked first. /help · Ctrl-D leaves")
    if not opened.began:
        _remember(chat)
    if opened.open_run:
        view.say(f"Run {opened.open_run} was under way when this chat ended: /resume goes on with it.", "yellow")
        chat.aside(f"(Run {opened.open_run} was interrupted with the chat; the person can type /resume.)")


def _remember(chat: Chat) -> None:
    """The last words of both sides, so that a person knows where they were."""
    said = chat.talk.messages if chat.talk is not None else chat.run.journal.state.messages
    for role, mark in (("user", "you"), ("assistant", "it")):
        texts = [str(m.get("content") or "") for m in said if m["role"] == role and m.get("content")]
        if texts:
            view_text = texts[-1].rsplit("<<<END", 1)[-1].strip()
            chat.view.say(f"  {mark}: {view_text[-300:]}", "dim")


def _converse(chat: Chat, reader: PlainReader | TerminalReader, edited: bool) -> None:
    """Until the person leaves. Ctrl-C at the prompt only drops the line."""
    from opsagent.chat.commands import LEAVE, obey
    from opsagent.chat.talk import respond

    while True:
        try:
            text = reader.read().strip()
        except KeyboardInterrupt:
            chat.view.say("  (Ctrl-D leaves)", "dim")
            continue
        except EOFError:
            return
        if not text:
            continue
        if text.removeprefix("/") in LEAVE and text.startswith("/"):
            return
        try:
            if text.startswith("/"):
                obey(chat, text)
            elif chat.talk is None:
                chat.last_code = 2
                chat.view.say("No LLM is set, so these words go nowhere. /help lists what works without one.", "yellow")
            else:
                respond(chat, text)
        except KeyboardInterrupt:
            chat.view.say("  cancelled", "yellow")
