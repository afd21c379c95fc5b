"""`opsagent runs`: what ran where, and how it ended."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from opsagent.journal.runs import Opened


@click.command("runs", short_help="List runs: what ran where, and how it ended.")
@click.option("--all", "everything", is_flag=True, help="Every run, not only the newest 20.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(everything: bool, as_json: bool) -> int:
    """List the runs of this user, newest first. RUN of the other verbs is an id from here, or its first characters.

    \b
    Examples:
      opsagent runs
      opsagent runs --all --json
    """
    from itertools import islice

    from opsagent.journal.runs import Opened, all_runs, runs_root
    from opsagent_tools.errors import InputError

    rows = [
        row(item) if isinstance(item, Opened) else {"run": item[0].name, "status": "damaged", "what": item[1].what}
        for item in islice(all_runs(), None if everything else 20)
    ]
    if as_json:
        click.echo(json.dumps({"runs": rows, "root": str(runs_root())}, indent=1, ensure_ascii=False))
        return 0
    if not rows:
        try:
            with contextlib.suppress(FileNotFoundError):
                next(runs_root().iterdir(), None)  # PermissionError: what cannot be looked into is not empty
        except NotADirectoryError as error:
            raise InputError(
                "the folder of runs is no folder", where=str(runs_root()), hint="is XDG_STATE_HOME right?"
            ) from error
        click.echo(f"No runs yet in {runs_root()}. Begin with: opsagent run runbooks/migrate.md")
        return 0
    _print(rows)
    return 0


def row(run: Opened) -> dict[str, Any]:
    """A run in a list."""
    state = run.state
    runbook = state.started.get("runbook") or {}
    return {
        "run": str(state.run or run.folder.name),
        "began": state.first_ts,
        "status": run.status,
        "exit_code": state.exit_code,
        "runbook": str(runbook.get("name", "")),
        "hosts": {role: name for role, name in (state.started.get("hosts") or {}).items() if name},
        "model": str(state.started.get("model", "")),
        "simulated": bool(state.started.get("simulated")),
        "step": state.step,
        "waiting": [call.call.id for call in state.waiting],
        "calls": state.usage.calls,
        "wall_s": round(state.usage.wall_s, 1),
        "folder": str(run.folder),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from opsagent.fence import neutral

    table = Table(box=None, pad_edge=False)
    for column in ("run", "began (UTC)", "runbook", "hosts", "status", "next"):
        table.add_column(column, overflow="fold")
    for row in rows:
        hosts = ", ".join(row.get("hosts", {}).values()) + ("  SIMULATED" if row.get("simulated") else "")
        began = str(row.get("began", ""))[:16].replace("T", " ")
        cells = (row["run"], began, row.get("runbook", ""), hosts, row["status"], _next(row))
        table.add_row(*[Text(neutral(str(cell))) for cell in cells])
    Console().print(table)


def _next(row: dict[str, Any]) -> str:
    """What a person would do with it."""
    from opsagent.mcp_server.book import NAME as SESSION

    status, run = row["status"], row["run"]
    if status == "damaged":
        return f"opsagent verify {run}"
    if row.get("waiting"):
        return f"opsagent approve {run} {row['waiting'][0]}"
    if status in ("stopped", "interrupted", "transient", "budget", "unknown-outcome"):
        return f"opsagent {'mcp --resume' if row.get('runbook') == SESSION else 'resume'} {run}"
    return "" if status == "running" else f"opsagent show {run}"
