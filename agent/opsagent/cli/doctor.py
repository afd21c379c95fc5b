"""`opsagent doctor`: is everything there that a run needs?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsagent.cli.candidates import host_names

if TYPE_CHECKING:
    from opsagent.doctor import Check


@click.command("doctor", short_help="Check this machine, the hosts and the LLM endpoint.")
@click.option(
    "--host",
    "names",
    multiple=True,
    metavar="NAME",
    shell_complete=host_names,
    help="A host to check (default: all of hosts.toml).",
)
@click.option("--hosts", "hosts_file", default="", metavar="FILE", help="hosts.toml to use.")
@click.option("--llm", default=None, metavar="NAME", help="Model at OPENAI_BASE_URL to check (sends two requests).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(names: tuple[str, ...], hosts_file: str, llm: str | None, as_json: bool) -> int:
    """Check this machine, the hosts of hosts.toml (or --host NAME), and with --llm the model's endpoint.

    Hosts are only read.

    \b
    Examples:
      opsagent doctor
      opsagent doctor --host kpro5 --host local
      OPENAI_BASE_URL=http://gpu4:30000/v1 opsagent doctor --llm Qwen3.6-27B

    Exit: 0 fine, 2 something to configure, 3 unreachable, 8 the model makes no tool calls.
    """
    from opsagent_tools.errors import worst

    found: list[Check] = []
    for check in _checks(names, hosts_file, llm):
        found.append(check)
        if not as_json:
            print_check(check)
    code = int(worst([check.exit_code for check in found if check.ok is False]))
    if as_json:
        body = {"ok": code == 0, "exit_code": code, "checks": rows_of(found)}
        click.echo(json.dumps(body, indent=1, ensure_ascii=False))
    return code


def _checks(names: tuple[str, ...], hosts_file: str, llm: str | None) -> Iterator[Check]:
    from opsagent import doctor, doctor_machine, xdg
    from opsagent.models.select import choose
    from opsagent_tools.errors import OpsError

    yield from doctor_machine.machine(os.environ)
    yield from _hosts(names, xdg.hosts_file(hosts_file), given=bool(hosts_file))
    try:
        choice = choose(llm, os.environ)
    except OpsError as error:
        yield doctor.failed("llm", "choice", error)
        return
    if choice.kind == "openai":
        click.echo(choice.notice, err=True)
        yield from doctor.llm(choice)
    else:
        yield doctor.Check("llm", "choice", True, f"{choice.kind}: nothing is sent anywhere")


def _hosts(names: tuple[str, ...], path: Path, *, given: bool) -> Iterator[Check]:
    from opsagent import doctor
    from opsagent_tools.errors import OpsError
    from opsagent_tools.host import Host
    from opsagent_tools.hosts.inventory import load_inventory, open_host

    try:
        inventory = load_inventory(path, missing_ok=not given)
    except OpsError as error:
        yield doctor.failed("host", "hosts.toml", error)
        return
    if not names and not inventory.entries:
        hint = "opsagent hosts add NAME --address …; the lab needs none"
        yield doctor.Check("host", "hosts.toml", None, "no hosts are configured", hint)
    opened: dict[str, Host] = {}
    try:
        for name in names or tuple(inventory.entries):
            yield from doctor.host(name, lambda name=name: open_host(name, inventory, opened))  # type: ignore[misc]
    finally:
        for host in opened.values():
            host.close()


def rows_of(found: list[Check]) -> list[dict[str, object]]:
    """The checks as `--json` prints them."""
    return [{"area": c.area, "name": c.name, "ok": c.ok, "detail": c.detail, "hint": c.hint} for c in found]


def print_check(check: Check) -> None:
    """One line, and what to do when it is not fine."""
    mark = {True: "✔", False: "✘", None: "·"}[check.ok]
    click.echo(f"{mark} {check.area}: {check.name}: {check.detail}")
    if check.hint and check.ok is not True:
        click.echo(f"    {check.hint}")
