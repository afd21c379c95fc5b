"""`opsagent show RUN [EVENT…]`: a run as people read it, the events that a report cites, or all of it as one HTML file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsagent.cli.candidates import runs

if TYPE_CHECKING:
    from opsagent.journal.runs import Opened
    from opsagent.protocols import Event
    from opsagent.viewer.select import Selection
    from opsagent_tools.errors import TranscriptDamaged

ONLY = ("problems", "calls", "model", "checks", "approvals", "steps", "notes")


@click.command("show", short_help="Show a run, or write it as HTML.")
@click.argument("run", shell_complete=runs)
@click.argument("events", nargs=-1, metavar="[EVENT]...")
@click.option("--event", "-e", "more", multiple=True, metavar="EVENT", help="The same as EVENT; may be given again.")
@click.option("--step", default="", metavar="ID", help="Only what happened in this step of the runbook.")
@click.option("--only", type=click.Choice(ONLY), help="Only this kind of events.")
@click.option("--grep", default="", metavar="REGEX", help="Only events that say this, in their line or in their data.")
@click.option("--full", is_flag=True, help="Every event with arguments, results, thinking and kept outputs, in short.")
@click.option("--brief", is_flag=True, help="Leave out the model's words.")
@click.option("--html", "page", default="", metavar="FILE", help="Write the whole run as one HTML file (- for stdout).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: state and events.")
@click.option("--blob", default="", metavar="SHA256", help="Print a kept output (a prefix of its sha256 is enough).")
def command(
    run: str, events: tuple[str, ...], more: tuple[str, ...], step: str, only: str | None, grep: str, full: bool,
    brief: bool, page: str, as_json: bool, blob: str,
) -> int:  # fmt: skip
    """Show RUN, an id, a prefix of one, or a path; with EVENT (e41) only these, with all that they hold.

    \b
    Examples:
      opsagent show 7f3a                       # what happened, with the event behind each line
      opsagent show 7f3a e212 e226             # the evidence of a claim
      opsagent show 7f3a --only problems       # what went wrong; also --step launch, --grep 'out of memory'
      opsagent show 7f3a --step launch --full  # with arguments, results, thinking
      opsagent show 7f3a --blob 3fd1           # a whole output
      opsagent show 7f3a --html run.html       # one file for a browser: search, links, the evidence of each claim

    Exit codes: 0 shown, 1 no event is like that, 2 no such run or event, 9 damaged (what is intact is shown).
    """
    from opsagent.cli import fail
    from opsagent.journal.intact import open_intact
    from opsagent.viewer.select import Selection
    from opsagent_tools.errors import OpsError

    try:
        opened, damage = open_intact(run)
        if blob:
            return _blob(opened, blob)
        if page:
            return _page(opened, damage, page, as_json=as_json)
        named = [_event(opened, name) for name in (*events, *more)]
        wanted = Selection(_step(opened, step), only or "", _pattern(grep))
        code = _shown(opened, damage, run, named, wanted, full=full, brief=brief, as_json=as_json)
    except OpsError as error:
        return fail(error, as_json=as_json)
    except BrokenPipeError:  # `| head`: who reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit:  # rich's way of saying the same
        return 0
    if damage is None:
        return code
    return int(damage.exit_code) if as_json else fail(damage)


def _shown(
    opened: Opened, damage: TranscriptDamaged | None, run: str, named: list[Event], wanted: Selection,
    *, full: bool, brief: bool, as_json: bool,
) -> int:  # fmt: skip
    """Print what is wanted; the exit code."""
    picked = None if wanted.all else frozenset(event.id for event in wanted.pick(opened.log.events))
    if as_json:
        chosen = named or [event for event in opened.log.events if picked is None or event.id in picked]
        click.echo(json.dumps(_json(opened, damage, chosen), indent=1, ensure_ascii=False))
    elif named:
        _whole(opened, run, named)
    elif picked is None or picked:
        _timeline(opened, run, wanted, picked, full=full, brief=brief)
    if picked is not None and not picked and not named:
        click.echo("no event is like that", err=True)
        return 1
    return 0


def _event(opened: Opened, name: str) -> Event:
    from opsagent_tools.errors import InputError

    number = name.removeprefix("e")
    if number.isascii() and number.isdigit() and len(number) < 10 and 0 < int(number) <= len(opened.log.events):
        return opened.log.events[int(number) - 1]
    raise InputError(f"no event {name!r}", where=str(opened.folder), hint=f"e1 to e{len(opened.log.events)}")


def _step(opened: Opened, name: str) -> str:
    from opsagent_tools.errors import InputError, suggest

    if name and name not in opened.state.steps:
        hint = suggest(name, opened.state.steps)
        raise InputError(f"no step {name!r} in this run", where=str(opened.folder), hint=hint)
    return name


def _pattern(text: str) -> re.Pattern[str] | None:
    from opsagent_tools.errors import InputError

    try:
        return re.compile(text, re.IGNORECASE) if text else None
    except re.error as error:
        raise InputError(f"--grep: {error}", hint="a regular expression; \\ before what is meant as it is") from None


def _json(opened: Opened, damage: TranscriptDamaged | None, events: list[Event]) -> dict[str, Any]:
    state = opened.state
    return {
        "run": state.run,
        "folder": str(opened.folder),
        "status": opened.status,
        "exit_code": state.exit_code,
        "simulated": bool(state.started.get("simulated")),
        "runbook": state.started.get("runbook"),
        "hosts": state.started.get("hosts"),
        "model": state.started.get("model"),
        "params": state.params,
        "steps": [
            {"id": s.id, "entered": s.entered, "left": s.left, "checks": s.checks, "remedies": s.remedies}
            for s in state.steps.values()
        ],
        "waiting": [call.call.id for call in state.waiting],
        "usage": {
            "turns": state.usage.turns, "calls": state.usage.calls, "wall_s": round(state.usage.wall_s, 1),
            "tokens": {"in": state.usage.tokens_in, "out": state.usage.tokens_out},
        },
        "torn_line": opened.log.torn_line,
        "damage": None if damage is None else damage.as_json()["error"],
        "events": [{"id": e.id, "ts": e.ts, "type": e.type, "data": e.data} for e in events],
    }  # fmt: skip


def _whole(opened: Opened, run: str, events: list[Event]) -> None:
    from rich.console import Console

    from opsagent.journal.reader import read_blob
    from opsagent.transcript import Transcript
    from opsagent.viewer.claims import claims_of
    from opsagent.viewer.load import report_of
    from opsagent.viewer.terminal import one, related

    claims = claims_of(report_of(opened.folder)[0] or {}, len(opened.log.events))
    console, transcript = Console(highlight=False, soft_wrap=True), Transcript(everything=True)
    lines = {line.event: line for line in transcript.lines(opened.log.events)}
    for event in events:
        one(console, event, lines.get(event.id), run, partial(read_blob, opened.folder))
        related(console, event, opened.log.events, claims)


def _blob(opened: Opened, prefix: str) -> int:
    from opsagent.fence import neutral
    from opsagent.journal.reader import BLOBS, read_blob
    from opsagent_tools.errors import InputError

    folder = opened.folder / BLOBS
    found = [path.name for path in folder.iterdir() if path.name.startswith(prefix)] if folder.is_dir() else []
    if len(found) != 1:
        raise InputError(f"{len(found)} outputs begin with {prefix!r}", where=str(folder))
    click.echo(neutral(read_blob(opened.folder, found[0]).decode("utf-8", "replace")), nl=False)
    return 0


def _timeline(
    opened: Opened, run: str, wanted: Selection, picked: frozenset[str] | None, *, full: bool, brief: bool
) -> None:  # fmt: skip
    from rich.console import Console
    from rich.text import Text

    from opsagent.journal.reader import read_blob
    from opsagent.transcript import Transcript, header
    from opsagent.viewer.terminal import everything, put_text, timeline

    console = Console(highlight=False, soft_wrap=True)
    put_text(console, "", Text(header(opened.log.events, opened.status), style="bold"))
    if full:
        everything(console, opened.log.events, picked, run, partial(read_blob, opened.folder))
    else:
        transcript = Transcript(turns=not brief, everything=bool(wanted.kind or wanted.pattern))
        timeline(console, opened.log.events, picked, transcript, wanted.pattern)
    usage = opened.state.usage
    tokens = "" if not usage.tokens_in else f", {usage.tokens_in:,} + {usage.tokens_out or 0:,} tokens"
    secrets = sum(opened.state.redactions.values())
    hidden = f", {secrets} secret{'' if secrets == 1 else 's'} replaced" if secrets else ""
    console.print(
        Text(
            f"{usage.turns} turns, {usage.calls} calls{tokens}, {usage.wall_s:.0f} s{hidden} · {opened.folder}",
            style="dim",
        )
    )
    if opened.log.torn:
        console.print(
            Text(f"line {opened.log.torn_line} is torn: the process died while it was written", style="yellow")
        )


def _page(opened: Opened, damage: TranscriptDamaged | None, target: str, *, as_json: bool) -> int:
    """Write the run as HTML; the exit code."""
    from opsagent.cli import fail
    from opsagent.report.write import PAGE, VIEWER, link_viewer
    from opsagent.viewer.html import html
    from opsagent.viewer.load import view_of
    from opsagent_tools.errors import InputError

    view = view_of(opened, damage)
    beside = Path(target).parent / PAGE
    text = html(view, opened.log.head, report=PAGE if target != "-" and beside.exists() else "")
    if target == "-":
        click.echo(text, nl=False)
    else:
        path = Path(target)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise InputError(
                f"cannot write the page: {error.strerror}", where=target, hint="name a file in a folder that exists"
            ) from None
        if damage is None and path.resolve() == (opened.folder / VIEWER).resolve():
            link_viewer(opened.folder, opened.log.events)
        size, count = len(text.encode()), len(opened.log.events)
        if as_json:
            told = {"file": target, "bytes": size, "events": count, "characters_left_out": view.left_out}
            click.echo(json.dumps({**told, "damage": None if damage is None else damage.as_json()["error"]}))
        else:
            click.echo(f"{target}: {count:,} events, {size / 1e6:.1f} MB", err=True)
    if damage is None:
        return 0
    return int(damage.exit_code) if as_json else fail(damage)
