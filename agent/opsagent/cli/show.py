"""`opsagent show RUN [EVENT…]`: a run as people read it, or the events that a report cites."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from opsagent.cli.candidates import runs

if TYPE_CHECKING:
    from opsagent.journal.runs import Opened
    from opsagent.protocols import Event

STYLES = {"step": "bold", "good": "green", "bad": "red", "ask": "yellow", "dim": "dim", "": ""}


@click.command("show", short_help="Show a run, or write it as HTML.")
@click.argument("run", shell_complete=runs)
@click.argument("events", nargs=-1, metavar="[EVENT]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: state and events.")
@click.option("--brief", is_flag=True, help="Leave out the model's words.")
@click.option("--blob", default="", metavar="SHA256", help="Print a kept output (a prefix of its sha256 is enough).")
def command(run: str, events: tuple[str, ...], as_json: bool, brief: bool, blob: str) -> int:
    """Show RUN, an id, a prefix of one, or a path; with EVENT (e41) only these, in full.

    \b
    Examples:
      opsagent show 7f3a                # what happened, with the event behind each line
      opsagent show 7f3a e212 e226      # the evidence of a claim
      opsagent show 7f3a --blob 3fd1    # a whole output
    """
    from opsagent.cli import fail
    from opsagent.journal.runs import open_run
    from opsagent.transcript import Transcript
    from opsagent_tools.errors import OpsError

    try:
        opened = open_run(run)
        if blob:
            return _blob(opened, blob)
        chosen = [_event(opened, name) for name in events]
    except OpsError as error:
        return fail(error, as_json=as_json)
    if as_json:
        click.echo(json.dumps(_json(opened, chosen or list(opened.log.events)), indent=1, ensure_ascii=False))
    elif chosen:
        for event in chosen:
            _whole(event)
    else:
        _timeline(opened, Transcript(turns=not brief))
    return 0


def _event(opened: Opened, name: str) -> Event:
    from opsagent_tools.errors import InputError

    number = name.removeprefix("e")
    if number.isdigit() and 0 < int(number) <= len(opened.log.events):
        return opened.log.events[int(number) - 1]
    raise InputError(f"no event {name!r}", where=str(opened.folder), hint=f"e1 to e{len(opened.log.events)}")


def _json(opened: Opened, events: list[Event]) -> dict[str, Any]:
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
        "events": [{"id": e.id, "ts": e.ts, "type": e.type, "data": e.data} for e in events],
    }  # fmt: skip


def _whole(event: Event) -> None:
    from opsagent.fence import neutral

    click.echo(f"{event.id} · {event.ts} · {event.type}")
    click.echo(neutral(json.dumps(event.data, indent=2, ensure_ascii=False)))


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


def _timeline(opened: Opened, transcript: Any) -> None:
    from rich.console import Console
    from rich.text import Text

    from opsagent.transcript import header

    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(header(opened.log.events, opened.status), style="bold"))
    for line in transcript.lines(opened.log.events):
        text = Text(f"{line.event:>6} ", style="dim")
        text.append("  " * line.depth + line.text, style=STYLES[line.style])
        console.print(text)
    usage = opened.state.usage
    tokens = "" if usage.tokens_in is None else f", {usage.tokens_in:,} + {usage.tokens_out or 0:,} tokens"
    console.print(
        Text(f"{usage.turns} turns, {usage.calls} calls{tokens}, {usage.wall_s:.0f} s · {opened.folder}", style="dim")
    )
    if opened.log.torn:
        console.print(
            Text(f"line {opened.log.torn_line} is torn: the process died while it was written", style="yellow")
        )
