"""Slash commands: what works without a model, and what is quicker than words. Each is a click command with its own --help.

Verbs of the command line that make sense here (`/diagnose`, `/show`, `/verify` …) are the very same commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from opsagent.chat import conduct
from opsagent.chat.talk import Chat, read, told
from opsagent.execute import Rejected
from opsagent.protocols import ToolCall
from opsagent.redact import mark
from opsagent.secret_rules import SECRET_KEY
from opsagent.signals import Signal
from opsagent_tools.errors import InputError, OpsError, suggest

LEAVE = ("quit", "exit")
VERBS = ("show", "verify", "diff", "replay", "lint", "doctor", "policy")
"""Verbs of the command line that are used here as they are."""
MODES = ("ask", "declared", "never")


def obey(chat: Chat, line: str) -> None:
    """Carry out `/command …`. What is wrong with it is said; the chat goes on."""
    chat.run.emit("note", kind="chat.command", text=without_secrets(chat, line))
    try:
        name, *words = shlex.split(line.removeprefix("/"))
    except ValueError as error:
        chat.last_code = 2
        return chat.view.error(InputError(f"cannot read the command: {error}", hint="quotes come in pairs"))
    try:
        command = _command(name)
        result = command.main(words, prog_name=f"/{name}", standalone_mode=False, obj=chat)
        chat.last_code = result if isinstance(result, int) else 0
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        chat.last_code = 2
        chat.view.say(f"✘ {error.format_message()}", "red")
        chat.view.say(f"  /{name} --help says how it is used")
    except (click.Abort, KeyboardInterrupt):
        chat.last_code = 130
        chat.view.say("  cancelled", "yellow")
    except (OpsError, Signal) as error:
        chat.last_code = int(getattr(error, "exit_code", 1))
        chat.view.error(error if isinstance(error, OpsError) else OpsError(str(error)))
    return None


def _command(name: str) -> click.Command:
    if name in COMMANDS:
        return COMMANDS[name]
    if name in VERBS:
        from opsagent.cli import cli

        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        return found
    raise InputError(f"no command /{name}", hint=suggest(name, [*COMMANDS, *VERBS, *LEAVE]))


PAIR = re.compile(r"([\w.-]+)=(\"[^\"]*\"|'[^']*'|\S+)")


def without_secrets(chat: Chat, line: str) -> str:
    """The line as it may be kept: values of secret parameters, and all of a runbook that is not known here, are left out."""
    text = chat.run.journal.redactor.clean(line)
    if not line.startswith("/"):
        return text
    params = {name: param for book in chat.books.values() for name, param in book.front.params.items()}
    stranger = line.split()[:1] == ["/run"] and Path(" ".join(line.split()[1:2])).stem not in chat.books

    def kept(found: re.Match[str]) -> str:
        name = found.group(1)
        known = params.get(name)
        open_ = name in chat.ground.names or any(name in book.front.hosts for book in chat.books.values())
        hide = SECRET_KEY.search(name) or (known is not None and known.secret) or (stranger and not open_)
        return f"{name}={mark()}" if hide else found.group()

    return PAIR.sub(kept, text)


def words(chat: Chat) -> Mapping[str, Iterable[str]]:
    """Commands and what may follow each, for the Tab key."""
    books, runs, hosts = list(chat.books), list(chat.runs), chat.ground.names
    after: dict[str, list[str]] = {
        "run": books, "hosts": hosts, "approve": [*MODES, *runs], "report": runs, "stop": runs, "rollback": runs,
        "resume": runs, "show": runs, "verify": runs,
    }  # fmt: skip
    return {f"/{name}": after.get(name, []) for name in sorted({*COMMANDS, *VERBS, *LEAVE})}


# --- help ----------------------------------------------------------------------------------------------------------


@click.command("help", short_help="What can be typed here.")
@click.pass_obj
def help_(chat: Chat) -> None:
    """What can be typed here."""
    rows = [(f"/{name}", command.get_short_help_str(70)) for name, command in COMMANDS.items()]
    rows += [(f"/{name}", "as `opsagent " + name + "`") for name in VERBS]
    rows += [("/quit", "Leave; the chat can be resumed. (Ctrl-D does the same.)")]
    for name, text in rows:
        chat.view.say(f"  {name:12}{text}")
    chat.view.say()
    chat.view.say("  Enter sends; Alt-Enter, or \\ at the end, begins a new line. Ctrl-C cancels an answer or a line.")
    if chat.talk is None:
        chat.view.say("  " + NO_MODEL)


NO_MODEL = (
    "No LLM is set, so nothing here understands plain language: only the /commands work. With one: set OPENAI_BASE_URL "
    "(and OPENAI_API_KEY if it wants one) and start with --llm NAME."
)


# --- planning ------------------------------------------------------------------------------------------------------


@click.command("plan", short_help="Predict a launch on a host of this chat, with its GPUs as they are now.")
@click.argument("model", default="")
@click.option("--host", default="", metavar="NAME", help="Where; needed when there are several.")
@click.option("--want-context", type=int, metavar="N", help="Context length that you want, tokens.")
@click.option("--want-concurrency", type=int, metavar="N", help="Requests at once that you want.")
@click.option("--keep", multiple=True, metavar="WHAT", help="What must not change: speculation, precision, or a flag.")
@click.option("--python", default="", metavar="PATH", help="Interpreter of the serving environment: its SGLang counts.")
@click.option("--sglang", default="", metavar="VER", help="SGLang's version.")
@click.option("--empty", is_flag=True, help="As if nothing ran on the cards now.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def plan(chat: Chat, /, model: str, host: str, flags: tuple[str, ...], **options: Any) -> int:
    r"""Predict a launch of MODEL (a directory on the host). SGLang's FLAGS come after --.

    What is left out is taken from the last /plan: model, host and wish; flags too, unless there is a --.

    \b
    /plan /srv/models/Qwen3.6-27B --host gpu3 --want-context 65536 -- --tp 2
    /plan --want-context 131072
    """
    if model.startswith("-"):  # `/plan -- --tp 2`: click takes the first flag for the model
        model, flags = "", (model, *flags)
    given = {key: value for key, value in options.items() if value}
    given |= {"model": model} if model else {}
    given |= {"host": host} if host else {}
    given |= {"flags": list(flags)} if flags else {}
    chat.planned |= {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    if not chat.planned.get("model"):
        raise InputError("no model", hint="/plan MODEL_DIR: where it lies on the host")
    arguments = {key: value for key, value in chat.planned.items() if key != "empty" or options["empty"]}
    found = called(chat, "estimate_vram", arguments)
    from opsagent_tools.sglang.plan import Plan
    from opsagent_tools.sglang.words import plan_text

    result = Plan.model_validate({key: value for key, value in found.items() if key in Plan.model_fields})
    chat.view.say()
    chat.view.say(plan_text(result))
    chat.aside(told("The person typed /plan; it said", plan_text(result)))
    return 0 if result.verdict == "fits" else 1


def called(chat: Chat, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """One read by the person, on the same way as the model's. Raises InputError, ToolFailed."""
    host = arguments.get("host", "")
    if not host and len(chat.ground.names) > 1:
        raise InputError("on which host?", hint=f"--host NAME; known: {', '.join(chat.ground.names)}")
    if host and host not in chat.ground.names:
        raise InputError(f"this chat has no host {host!r}", hint=suggest(host, chat.ground.names))
    try:
        outcome = read(chat, ToolCall("person", tool, {**arguments, "host": host or chat.ground.names[0]}))
    except Rejected as error:
        raise InputError(error.what, hint=error.hint) from error
    if outcome.result is None:
        raise OpsError(outcome.error, hint=outcome.hint)
    return outcome.result


@click.command("hosts", short_help="The hosts of this chat; with a NAME: look at it.")
@click.argument("name", default="")
@click.pass_obj
def hosts(chat: Chat, name: str) -> int:
    """List the hosts, or look at one: cards, driver, servers, environments."""
    if name:
        found = called(chat, "inspect_host", {"host": name})
        for card in found["gpus"]:
            index = "–" if card["index"] is None else card["index"]
            chat.view.say(f"  GPU {index}  {card['name']}  {card.get('memory_used_mib') or 0} of "
                          f"{card.get('memory_total_mib') or '?'} MiB used")  # fmt: skip
        for server in found["servers"]:
            where = f"port {server.get('port')}" if server.get("port") else ""
            chat.view.say(f"  server  {server.get('engine')} {server.get('model')} {where}")
        for venv in found["venvs"]:
            chat.view.say(f"  venv    {venv['path']}  SGLang {venv.get('sglang') or 'none'}")
        return 0
    for each in chat.ground.names:
        entry = chat.ground.places.inventory.entries.get(each)
        how = f"container {entry.pct} of {entry.via}" if entry and entry.via else (entry.address if entry else "")
        roles = ", ".join(role for role, host in chat.ground.defaults.items() if host == each)
        label = chat.ground.places.inventory.label(each)
        chat.view.say(f"  {each:16}{roles:14}{how or ('this machine' if each == 'local' else ''):24}{label}".rstrip())
    return 0


@click.command("diagnose", short_help="Name the cause in a log: FILE here, or HOST:PATH.")
@click.argument("log")
@click.pass_obj
def diagnose(chat: Chat, log: str) -> int:
    """Name the cause of a failed or sick server from its LOG: a file here, or HOST:PATH on a host of this chat."""
    host, colon, path = log.partition(":")
    if colon and host in chat.ground.names:
        found = called(chat, "tail_log", {"host": host, "path": path})
        diagnosis = found["diagnosis"]
        chat.view.say(f"{diagnosis.get('cause') or found['verdict']}  ({found['verdict']}, phase {found['phase']})")
        chat.view.say(f"  {diagnosis['summary']}")
        for line in diagnosis.get("evidence", [])[:4]:
            chat.view.say(f"  line {line['line']}: {line['text'][:300]}")
        if (diagnosis.get("fix") or {}).get("summary"):
            chat.view.say(f"  fix: {diagnosis['fix']['summary']}")
        return {"healthy": 0, "failed": 1}.get(found["verdict"], 3)
    from opsagent.cli.diagnose import command

    return int(command.main([log], prog_name="/diagnose", standalone_mode=False) or 0)


# --- runs ----------------------------------------------------------------------------------------------------------


@click.command("run", short_help="Propose a run of a runbook: shown, asked, made.")
@click.argument("runbook")
@click.option("-p", "params", multiple=True, metavar="NAME=VALUE", help="A parameter of the runbook.")
@click.option("--host", "roles", multiple=True, metavar="ROLE=NAME", help="Host of a role.")
@click.pass_obj
def run(chat: Chat, runbook: str, params: tuple[str, ...], roles: tuple[str, ...]) -> int:
    r"""Show what RUNBOOK would do, ask, and do it.

    \b
    /run launch --host target=gpu3 -p want_context=65536
    /run ./my-runbook.md
    """
    from opsagent.checked import checked_runbook
    from opsagent.data import find_runbook
    from opsagent.runbook.params import parse_assignments

    book = checked_runbook(find_runbook(runbook))
    before = chat.report
    answer = conduct.offer(chat, book, parse_assignments(roles), parse_assignments(params), "asked for with /run")
    if chat.report is None or chat.report is before:
        chat.view.say("  not run" + ("" if answer["answer"] == "no" else ": write /run again, as name=value"))
        return 0
    chat.aside(told("The person typed /run; its report", conduct.as_text(chat.report)))
    return chat.report.exit_code


@click.command("runs", short_help="The runs of this chat; --all: every run of this user.")
@click.option("--all", "everything", is_flag=True)
@click.pass_obj
def runs(chat: Chat, everything: bool) -> int:
    """The runs of this chat, oldest first."""
    if everything:
        from opsagent.cli.runs import command

        return int(command.main([], prog_name="/runs", standalone_mode=False) or 0)
    from opsagent.journal.runs import open_run

    for name, folder in chat.runs.items():
        opened = open_run(folder)
        book = (opened.state.started.get("runbook") or {}).get("name", "")
        waits = "".join(f"   /approve {name} {call.call.id}" for call in opened.state.waiting)
        chat.view.say(f"  {name}  {book:14}{opened.status}{waits}")
    if not chat.runs:
        chat.view.say("  no run yet: /run RUNBOOK, or say what you want")
    return 0


@click.command("report", short_help="The whole report of the last run, or of RUN.")
@click.argument("run", default="")
@click.pass_obj
def report(chat: Chat, run: str) -> int:
    """The whole report of the last run of this chat, or of RUN."""
    from opsagent.journal.runs import find_run
    from opsagent.report.model import StatusReport
    from opsagent.report.terminal import show

    folder = find_run(_last(chat, run))
    try:
        found = StatusReport.model_validate_json((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("this run has no report yet", where=str(folder), hint="/resume goes on with it") from error
    show(found)
    return 0


def _last(chat: Chat, run: str) -> str:
    """The folder of a run of this chat (the last one), or what was written."""
    if not run and not chat.runs:
        raise InputError("no run in this chat yet", hint="/run RUNBOOK, or name one of /runs --all")
    name = run or list(chat.runs)[-1]
    known = [each for each in chat.runs if each == name or each.startswith(name)]
    return chat.runs[known[0]] if len(known) == 1 else name


@click.command("approve", short_help="Who approves: ask, declared, never; or answer a CALL of a RUN that waits.",
               context_settings={"ignore_unknown_options": True})  # fmt: skip
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def approve(chat: Chat, words: tuple[str, ...]) -> int:
    r"""Say who approves inside the next runs, or answer a call that waits.

    \b
    /approve              how it is now
    /approve ask          you are asked (also on simulated hosts)
    /approve RUN [CALL]   as `opsagent approve`; then /resume RUN
    """
    if words and words[0] in MODES and len(words) == 1:
        chat.approve = words[0]
        chat.run.emit("note", kind="chat.approve", mode=chat.approve)
    elif words:
        from opsagent.cli.approve import command

        target = [_last(chat, words[0]), *words[1:]]
        return int(command.main(target, prog_name="/approve", standalone_mode=False) or 0)
    chat.view.say(f"  {chat.approve or 'usual'}: {conduct.approvals(chat)}")
    return 0


def _again(verb: str, text: str) -> click.Command:
    """/stop, /rollback and /resume: an earlier run, opened again in this chat's places."""

    @click.command(verb, short_help=text)
    @click.argument("run", default="")
    @click.option("--accept-drift", is_flag=True, help="Although runbook, policy or hosts changed.")
    @click.pass_obj
    def command(chat: Chat, run: str, accept_drift: bool) -> int:
        from opsagent.chat.again import again

        made = again(chat, _last(chat, run), verb, accept_drift=accept_drift)
        chat.aside(told(f"The person typed /{verb}; its report", conduct.as_text(made)))
        return chat.last_code

    command.help = text
    return command


COMMANDS: dict[str, click.Command] = {
    "help": help_, "plan": plan, "run": run, "hosts": hosts, "diagnose": diagnose, "runs": runs, "report": report,
    "approve": approve, "stop": _again("stop", "End the server of the last run, or of RUN."),
    "rollback": _again("rollback", "Undo what the last run (or RUN) did, newest first, through the gate."),
    "resume": _again("resume", "Go on with the last run, or with RUN."),
}  # fmt: skip
