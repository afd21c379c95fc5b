"""What `run` and `resume` print: progress on stderr while it goes, the report on stdout at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from opsagent.report.model import StatusReport
    from opsagent.run import Watcher
    from opsagent.session import Wish
    from opsagent_tools.errors import OpsError


def say_error(error: OpsError, *, runbook: str, as_json: bool) -> int:
    """An error before the run began. With --json it is a report all the same: a machine reads one shape."""
    from opsagent.cli import fail
    from opsagent.report.model import STATUS_BY_CODE, Claim, StatusReport

    code = int(error.exit_code)
    if as_json:
        text = ": ".join(part for part in (error.where, error.what) if part)
        report = StatusReport(
            status=STATUS_BY_CODE[code], simulated=False, run="", runbook=runbook, exit_code=code,
            failed=Claim(text=text + (f" ({error.hint})" if error.hint else "")),
        )  # fmt: skip
        click.echo(report.model_dump_json(indent=1))
    return fail(error)


def watcher_for(wish: Wish) -> Watcher:
    """The live view on a terminal, plain lines elsewhere; both on stderr."""
    from opsagent.live import watcher

    return watcher(wish, sys.stderr)


def show_report(report: StatusReport, folder: Path, *, as_json: bool) -> None:
    """The report on stdout: JSON, or Markdown as people read it."""
    if as_json:
        click.echo(report.model_dump_json(indent=1))
    else:
        from opsagent.report.terminal import show

        show(report)
    click.echo(f"run {report.run}: {folder}", err=True)
    page = folder / "report.html"
    if page.exists():
        click.echo(f"in a browser: {page.resolve().as_uri()}", err=True)
