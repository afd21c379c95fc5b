"""`opsagent lint RUNBOOK`: every fault before anything runs."""

from __future__ import annotations

from pathlib import Path

import click

from opsagent.cli.candidates import runbooks


@click.command("lint", short_help="Check a runbook before anything runs.")
@click.argument("runbooks", nargs=-1, required=True, type=click.Path(path_type=Path), shell_complete=runbooks)
def command(runbooks: tuple[Path, ...]) -> int:
    """Check names, types, references, expressions and the places to go of RUNBOOKS.

    Prints one line a fault, `FILE:LINE: what (what to write instead)`.

    \b
    Examples:
      opsagent lint mine.md
      opsagent lint runbooks/*.md

    Exit: 0 without faults, else 2.
    """
    from opsagent.checked import faults_of
    from opsagent.data import find_runbook
    from opsagent.runbook.parse import Fault

    bad = 0
    for given in runbooks:
        path = find_runbook(str(given))
        try:
            _runbook, faults = faults_of(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            faults = [Fault(str(path), 1, f"cannot read it: {error}")]
        for fault in faults:
            click.echo(str(fault))
        bad += len(faults)
        if not faults:
            click.echo(f"{path}: no faults", err=True)
    return 2 if bad else 0
