"""`opsagent verify RUN`: is this run folder what was written?"""

from __future__ import annotations

import json

import click

from opsagent.cli.candidates import runs


@click.command("verify", short_help="Check a run's journal, blobs and evidence.")
@click.argument("run", shell_complete=runs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(run: str, as_json: bool) -> int:
    """Check RUN: the hash chain, every blob, that each effect was approved before it began, and the report's evidence.

    A torn last line is tolerated (it was never acted upon).

    \b
    Examples:
      opsagent verify 7f3a
      opsagent verify transcripts/story --json

    Exit: 0 intact, 9 damaged, 2 no such run.
    """
    from opsagent.cli import fail
    from opsagent.journal.runs import find_run
    from opsagent.verify import verify
    from opsagent_tools.errors import OpsError

    try:
        found = verify(find_run(run))
    except OpsError as error:
        return fail(error, as_json=as_json)
    if as_json:
        body = {
            "ok": found.ok, "folder": str(found.folder), "events": found.events, "blobs": found.blobs, "head": found.head,
            "findings": [{"where": f.where, "what": f.what} for f in found.findings], "notes": found.notes,
        }  # fmt: skip
        click.echo(json.dumps(body, indent=1, ensure_ascii=False))
        return 0 if found.ok else 9
    for finding in found.findings:
        click.echo(f"✘ {finding.where}: {finding.what}")
    for note in found.notes:
        click.echo(f"  note: {note}")
    if found.ok:
        click.echo(f"✔ {found.events} events and {found.blobs} blobs are intact; head {found.head}")
    else:
        click.echo(f"{len(found.findings)} findings in {found.folder}")
    return 0 if found.ok else 9
