"""`opsagent policy explain` shows how the gate classifies one call; `policy test` runs the examples of every policy file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from opsagent.cli.candidates import host_names, runs, tools


@click.group(name="policy")
def command() -> None:
    """How the gate judges calls: one call explained, or every rule of the configuration tested on its own examples.

    \b
    Examples:
      opsagent policy explain ssh_exec gpu1 -- systemctl restart nginx
      opsagent policy test
    """


@command.command(context_settings={"ignore_unknown_options": True})
@click.option("--json", "as_json", is_flag=True, help="One JSON object: tier, rules, assumed.")
@click.option(
    "--hosts",
    "hosts_file",
    type=click.Path(path_type=Path),
    help="hosts.toml: facts are asked of a host that it names.",
)
@click.option(
    "--run",
    "run_id",
    default="",
    shell_complete=runs,
    help="Judge as if in this run: its units and processes are ours.",
)
@click.argument("tool", shell_complete=tools)
@click.argument("host", shell_complete=host_names)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="-- ARGV…")
def explain(as_json: bool, hosts_file: Path | None, run_id: str, tool: str, host: str, argv: tuple[str, ...]) -> int:
    """How would the gate classify this call?

    ARGV is the command for ssh_exec and run_job, where a word `|` separates the stages of a pipe; KEY=VALUE arguments for
    other tools. Nothing is executed. A host that is not configured is not asked: paths count as not being links and pids as
    not ours, and each such fact is listed as assumed.

    \b
    Examples:
      opsagent policy explain ssh_exec gpu1 -- ps aux '|' grep sglang
      opsagent policy explain write_file gpu1 -- path=/etc/pve/lxc/129.conf
      opsagent policy explain stop_server gpu1 --run 7f3a -- unit=opsagent-7f3a-c58

    Exit: 0 whatever the tier, 2 for a call that cannot be read.
    """
    from opsagent.cli import fail
    from opsagent.gate.explain import explained
    from opsagent_tools.errors import OpsError

    try:
        verdict = explained(tool, host, list(argv), hosts_file=hosts_file, run=run_id)
    except OpsError as error:
        return fail(error, as_json=as_json)
    rules: list[dict[str, Any]] = [{"id": reason.rule, "reason": reason.text} for reason in verdict.reasons]
    if as_json:
        answer = {"tier": verdict.tier, "rules": rules, "assumed": list(verdict.assumed)}
        click.echo(json.dumps(answer, ensure_ascii=False))
        return 0
    from opsagent.gate.display import visible

    click.echo(f"tier: {verdict.tier}")
    for rule in rules:
        click.echo(f"rule: {rule['id']} {visible(rule['reason'])}")
    for each in verdict.assumed:
        click.echo(f"assumed: {visible(each)}")
    return 0


@command.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object: files, rules, examples.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def test(as_json: bool, files: tuple[Path, ...]) -> int:
    """Run the examples of all policy files in force here (or of FILES).

    \b
    Examples:
      opsagent policy test
      opsagent policy test /etc/opsagent/opsagent.toml --json

    Exit: 0 all hold, 2 with the first fault.
    """
    from opsagent.cli import fail
    from opsagent.config import layers, read_layer
    from opsagent.gate.policy_file import policy_from
    from opsagent_tools.errors import OpsError

    try:
        found = [read_layer(str(path), path) for path in files] if files else layers()
        policy = policy_from(found)
    except OpsError as error:
        return fail(error, as_json=as_json)
    examples = sum(len(rule.match) + len(rule.not_match) for rule in policy.rules)
    names = [layer.origin for layer in found]
    if as_json:
        click.echo(json.dumps({"files": names, "rules": len(policy.rules), "examples": examples}))
    else:
        click.echo(f"{len(names)} policy files, {len(policy.rules)} rules, {examples} examples: all hold")
        for name in names:
            click.echo(f"  {name}")
    return 0
