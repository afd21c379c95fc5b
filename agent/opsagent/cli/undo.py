"""`opsagent stop RUN` and `opsagent rollback RUN`: end the server of a run; undo what a run did."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from opsagent.cli.candidates import runs
from opsagent.cli.run import MODES

if TYPE_CHECKING:
    from opsagent.report.model import StatusReport
    from opsagent.session import Session
    from opsagent_tools.errors import ExitCode


def _undo(
    run: str, mode: str, approve: str | None, accept_drift: bool, as_json: bool,
    work: Callable[[Session], tuple[ExitCode, StatusReport]],
) -> int:  # fmt: skip
    from opsagent.again import reopened
    from opsagent.cli.output import say_error, watcher_for
    from opsagent_tools.errors import OpsError

    try:
        with reopened(
            run, mode=mode, watcher=watcher_for, llm="autopilot", approve=approve or "", accept_drift=accept_drift,
            interactive=sys.stdin.isatty() and sys.stderr.isatty(),
        ) as session:  # fmt: skip
            code, report = work(session)
    except OpsError as error:
        return say_error(error, runbook="", as_json=as_json)
    if as_json:
        click.echo(report.model_dump_json(indent=1))
    elif report.failed is not None:
        click.echo(report.failed.text)
    if code == 4:
        click.echo(f"go on with: opsagent approve {report.run}, then the same command again", err=True)
    return int(code)


@click.command("stop", short_help="End the server that a run started.")
@click.argument("run", shell_complete=runs)
@click.option("--approve", type=MODES, default=None, help="Who approves.")
@click.option("--accept-drift", is_flag=True, help="Do it although runbook, policy or hosts changed.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def stop(run: str, approve: str | None, accept_drift: bool, as_json: bool) -> int:
    """End the server of RUN: its whole process group, and wait until the GPUs have their memory back.

    \b
    Examples:
      opsagent stop 7f3a
      opsagent stop 7f3a --approve declared --json

    Exit codes are those of `run`.
    """
    from opsagent.again import stop_server

    return _undo(run, "stop", approve, accept_drift, as_json, stop_server)


@click.command("rollback", short_help="Undo what a run did, newest first, through the gate.")
@click.argument("run", shell_complete=runs)
@click.option("--approve", type=MODES, default=None, help="Who approves.")
@click.option("--accept-drift", is_flag=True, help="Do it although runbook, policy or hosts changed.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def rollback(run: str, approve: str | None, accept_drift: bool, as_json: bool) -> int:
    """Make the rollbacks that the runbook declares for the steps of RUN, newest first, each through the gate.

    \b
    Examples:
      opsagent rollback 7f3a
      opsagent rollback 7f3a --accept-drift

    Exit codes are those of `run`.
    """
    from opsagent.again import roll_back

    return _undo(run, "rollback", approve, accept_drift, as_json, roll_back)
