"""`opsagent run RUNBOOK`: the main job."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from opsagent.cli.candidates import params as parameters
from opsagent.cli.candidates import roles, runbooks, scenarios

MODES = click.Choice(["ask", "declared", "never"])


@click.command("run", short_help="Follow a runbook to a verified report.")
@click.argument("runbook", shell_complete=runbooks)
@click.option(
    "-p", "params", multiple=True, metavar="NAME=VALUE", shell_complete=parameters, help="A parameter of the runbook."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ROLE=NAME",
    shell_complete=roles,
    help="Host of a role; `local` is this machine.",
)
@click.option("--hosts", "hosts_file", default="", metavar="FILE", help="hosts.toml to use.")
@click.option(
    "--lab", default="", metavar="SCENARIO", shell_complete=scenarios, help="Simulated hosts (opsagent lab list)."
)
@click.option("--llm", default="", metavar="NAME", help="Model at OPENAI_BASE_URL; `autopilot`; `replay:RUN`.")
@click.option("--approve", type=MODES, default=None, help="Who approves (default: ask with a terminal).")
@click.option("--approve-file", default="", metavar="FILE", help="Pre-approved calls by hash.")
@click.option("--dry-run", is_flag=True, help="Make reads only; end (exit 1) where a step needs more, and say what.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder of the run.")
def command(
    runbook: str, params: tuple[str, ...], hosts: tuple[str, ...], hosts_file: str, lab: str, llm: str,
    approve: str | None, approve_file: str, dry_run: bool, as_json: bool, out: Path | None,
) -> int:  # fmt: skip
    """Follow RUNBOOK step by step, every action through the gate, and end with a report that proves what it says.

    With neither --host nor --hosts (and no hosts.toml here) it runs on the lab: simulated hosts on loopback.

    \b
    Examples:
      opsagent run runbooks/migrate.md                 # the lab, nobody is asked
      opsagent run runbooks/launch.md --host target=gpu1 -p model_dir=/srv/models/Qwen3-32B -p wish="--tp-size 2"
      opsagent run runbooks/launch.md --host target=gpu1 --dry-run
      OPENAI_BASE_URL=http://gpu4:30000/v1 opsagent run runbooks/launch.md --host target=gpu1 --llm Qwen3.6-27B

    Exit: 0 verified, 1 failed, 2 usage, 3 transient, 4 needs approval, 5 budget, 6 denied, 7 outcome unknown,
    8 model unusable, 9 replay mismatch, 130 interrupted.
    """
    from opsagent.checked import checked_runbook
    from opsagent.cli.output import say_error, show_report, watcher_for
    from opsagent.data import find_runbook
    from opsagent.places import lab_places, real_places, wants_lab
    from opsagent.runbook.params import parse_assignments
    from opsagent.session import Wish, begin, conduct
    from opsagent_tools.errors import InputError, OpsError

    try:
        if lab and (hosts or hosts_file):
            raise InputError("--lab and --host do not go together", hint="the lab brings its own hosts")
        book = checked_runbook(find_runbook(runbook))
        given = parse_assignments(params)
        simulated = bool(lab) or wants_lab(hosts, hosts_file, Path.cwd())
        places = lab_places(book, lab) if simulated else real_places(book, hosts, hosts_file, Path.cwd())
    except OpsError as error:
        return say_error(error, runbook=runbook, as_json=as_json)
    wish = Wish(
        runbook=book, places=places, params=given, llm=llm or os.environ.get("OPSAGENT_LLM", ""),
        approve=approve or "", approve_file=approve_file, dry=dry_run, folder=out,
        interactive=sys.stdin.isatty() and sys.stderr.isatty(), notice=lambda text: click.echo(text, err=True),
    )  # fmt: skip
    try:
        session = begin(wish, watcher=watcher_for(wish))
    except OpsError as error:
        places.close()
        return say_error(error, runbook=book.name, as_json=as_json)
    with session:
        report = conduct(session)
    show_report(report, session.folder, as_json=as_json)
    return report.exit_code
