"""`opsagent diff A B`: where two runs part, and what each cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from opsagent.cli.candidates import runs

if TYPE_CHECKING:
    from opsagent.journal.runs import Opened


@click.command("diff", short_help="Where two runs part.")
@click.argument("a", shell_complete=runs)
@click.argument("b", shell_complete=runs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(a: str, b: str, as_json: bool) -> int:
    """Compare two runs step by step and call by call: the first divergence with its surroundings, then totals.

    Times, ids and measured durations are not compared.

    \b
    Examples:
      opsagent diff 7f3a 91c0
      opsagent diff transcripts/story transcripts/story-llm --json

    Exit: 0 the same course, 1 they part, 2 no such run, 9 damaged.
    """
    from opsagent.cli import fail
    from opsagent.divergence import parting, totals
    from opsagent.journal.runs import open_run
    from opsagent_tools.errors import OpsError

    try:
        one, other = open_run(a), open_run(b)
    except OpsError as error:
        return fail(error, as_json=as_json)
    parted = parting(one.log.events, other.log.events)
    sums = {"a": totals(one.state), "b": totals(other.state)}
    if as_json:
        click.echo(
            json.dumps({"same": parted is None, "divergence": parted, "totals": sums}, indent=1, ensure_ascii=False)
        )
    else:
        _print(one, other, parted, sums)
    return 0 if parted is None else 1


def _print(one: Opened, other: Opened, parted: dict[str, Any] | None, sums: dict[str, dict[str, Any]]) -> None:
    from opsagent.transcript import header

    click.echo(f"A {header(one.log.events, one.status)}")
    click.echo(f"B {header(other.log.events, other.status)}")
    if parted is None:
        click.echo("✔ the same course")
    else:
        click.echo(f"\n✘ they part at item {parted['at']}, in step {parted['step'] or '-'}: {parted['what']}")
        for side in ("a", "b"):
            for line in parted[side]:
                click.echo(f"  {side.upper()} {line}")
    click.echo("")
    for name in sums["a"]:
        mark = " " if sums["a"][name] == sums["b"][name] else "*"
        click.echo(f"{mark} {name:<16} {_shown(sums['a'][name]):>24} {_shown(sums['b'][name]):>24}")


def _shown(value: Any) -> str:
    return "unknown" if value is None else json.dumps(value) if isinstance(value, dict) else str(value)
