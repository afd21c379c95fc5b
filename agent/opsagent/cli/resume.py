"""`opsagent resume RUN`: go on where a run stopped."""

from __future__ import annotations

import sys

import click

from opsagent.cli.candidates import runs
from opsagent.cli.run import MODES


@click.command("resume", short_help="Go on with a run that stopped.")
@click.argument("run", shell_complete=runs)
@click.option("--llm", default="", metavar="NAME", help="Another model than the run had.")
@click.option("--approve", type=MODES, default=None, help="Who approves from here on.")
@click.option(
    "-p", "params", multiple=True, metavar="NAME=VALUE", help="A secret parameter again: the journal keeps none."
)
@click.option("--accept-drift", is_flag=True, help="Go on although runbook, policy or hosts changed.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def command(run: str, llm: str, approve: str | None, params: tuple[str, ...], accept_drift: bool, as_json: bool) -> int:
    """Go on with RUN (an id, the beginning of one, or a path) from its last finished call.

    A call whose outcome is unknown is settled first: asked of the host, made again if it only reads, or left to you.
    After exit 4: `opsagent approve RUN CALL`, then resume.

    \b
    Examples:
      opsagent resume 7f3a
      opsagent resume 7f3a --accept-drift      # the runbook, the policy or hosts.toml was changed meanwhile
      opsagent resume 7f3a --llm autopilot     # another model goes on

    Exit codes are those of `run`.
    """
    from opsagent.again import missing_report, reopened
    from opsagent.cli.output import say_error, show_report, watcher_for
    from opsagent.runbook.params import parse_assignments
    from opsagent.session import conduct
    from opsagent_tools.errors import OpsError

    try:
        mended = missing_report(run)
        if mended is not None:
            show_report(*mended, as_json=as_json)
            return mended[0].exit_code
        with reopened(
            run, mode="resume", watcher=watcher_for, llm=llm, approve=approve or "", accept_drift=accept_drift,
            secrets=parse_assignments(params),
            interactive=sys.stdin.isatty() and sys.stderr.isatty(), notice=lambda text: click.echo(text, err=True),
        ) as session:  # fmt: skip
            report, folder = conduct(session), session.folder
    except OpsError as error:
        return say_error(error, runbook="", as_json=as_json)
    show_report(report, folder, as_json=as_json)
    return report.exit_code
