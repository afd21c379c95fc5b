"""`opsagent lab`: the simulated hosts. `list` shows the scenarios, `serve` keeps one up for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsagent.cli.candidates import scenarios

if TYPE_CHECKING:
    from opsagent_lab.lab import Lab


@click.group("lab", short_help="The simulated hosts: list scenarios, serve one.")
def command() -> None:
    """Simulated GPU hosts behind a real SSH server on loopback.

    \b
    Examples:
      opsagent lab list
      opsagent lab serve story --hosts-file lab.toml
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def list_scenarios(as_json: bool) -> int:
    """The scenarios, what each is about, and the runbook it is for.

    \b
    Examples:
      opsagent lab list
      opsagent lab list --json
    """
    from opsagent_lab import scenario

    loaded = [scenario.load(name) for name in scenario.names()]
    if as_json:
        rows = [
            {
                "name": s.name,
                "title": s.title,
                "runbook": s.runbook,
                "goal": s.goal,
                "roles": s.roles,
                "hosts": list(s.hosts),
            }
            for s in loaded
        ]
        click.echo(json.dumps({"scenarios": rows}, ensure_ascii=False))
        return 0
    wide = max(len(s.name) for s in loaded)
    for s in loaded:
        click.echo(f"{s.name:{wide}}  {s.title}")
        click.echo(f"{'':{wide}}  opsagent run runbooks/{s.runbook}.md --lab {s.name}")
    return 0


@command.command("serve")
@click.argument("scenario", shell_complete=scenarios)
@click.option(
    "--state", type=click.Path(path_type=Path, dir_okay=False), help="Keep the hosts' state here, and start from it."
)
@click.option(
    "--hosts-file", type=click.Path(path_type=Path, dir_okay=False), help="Write a hosts.toml that reaches the hosts."
)
@click.option("--speed", type=click.FloatRange(min=0.1, max=10_000), help="Simulated seconds in a real one.")
def serve(scenario: str, state: Path | None, hosts_file: Path | None, speed: float | None) -> int:
    """Serve SCENARIO until Ctrl-C or SIGTERM.

    Prints one line of JSON when it is up: `lab`, `pid`, `speed`, `roles`, `params` and `hosts` (the tables of a hosts.toml).
    A client that dies or loses its link leaves the hosts as they are; `--state` keeps them over the end of this program too.

    \b
    Examples:
      opsagent lab serve story --hosts-file lab.toml --speed 100
      opsagent run runbooks/launch.md --hosts lab.toml --host target=kpro5    # in another terminal
    """
    import opsagent_lab
    from opsagent.cli import fail
    from opsagent_lab.scenario import ScenarioError
    from opsagent_tools.errors import InputError

    try:
        lab = opsagent_lab.open(scenario, state=state, speed=speed)
    except (ScenarioError, OSError) as problem:
        return fail(InputError(str(problem), hint="opsagent lab list shows the scenarios"))
    with lab:
        if hosts_file is not None:
            hosts_file.write_text(hosts_toml(lab.hosts()), encoding="utf-8")
        click.echo(json.dumps(_facts(lab), ensure_ascii=False))
        _wait()
    return 0


def _facts(lab: Lab) -> dict[str, Any]:
    import os

    return {
        "lab": lab.name, "pid": os.getpid(), "simulated": True, "speed": lab.speed, "roles": lab.roles, "params": lab.params,
        "hosts": lab.hosts(),
    }  # fmt: skip


def _wait() -> None:
    """Until SIGINT or SIGTERM."""
    import signal
    import threading

    over = threading.Event()
    before = [(number, signal.signal(number, lambda *_: over.set())) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        while not over.wait(3600):
            pass
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def hosts_toml(hosts: dict[str, dict[str, Any]]) -> str:
    """The tables of a hosts.toml."""
    lines: list[str] = []
    for name, table in hosts.items():
        lines.append(f"[hosts.{json.dumps(name)}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        lines.append("")
    return "\n".join(lines)
