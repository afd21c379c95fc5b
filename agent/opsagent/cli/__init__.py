"""The command line. One module per verb, imported when the verb is used: `opsagent --help` must stay quick."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import click

from opsagent import __version__

VERBS: dict[str, tuple[str, str]] = {
    # verb: (module, or module:name, that holds the command; one line for the list of verbs)
    "run": ("run", "Follow a runbook to a verified report."),
    "chat": ("chat", "Talk: propose a run, decide, see it made, ask what if."),
    "plan": ("plan", "Predict memory, limits and better flags of a launch."),
    "diagnose": ("diagnose", "Name the cause of a failed or sick server from its log."),
    "runs": ("runs", "List runs: what ran where, and how it ended."),
    "resume": ("resume", "Go on with a run that stopped."),
    "stop": ("undo:stop", "End the server that a run started."),
    "rollback": ("undo:rollback", "Undo what a run did, newest first, through the gate."),
    "replay": ("replay", "Run a transcript again without hosts or model."),
    "show": ("show", "Show a run, or write it as HTML."),
    "diff": ("diff", "Where two runs part."),
    "verify": ("verify", "Check a run's journal, blobs and evidence."),
    "approve": ("approve", "Answer a call that waits for approval."),
    "policy": ("policy", "Explain or test the gate's policy."),
    "lint": ("lint", "Check a runbook before anything runs."),
    "mcp": ("mcp", "Serve the tools to an assistant (MCP over stdio)."),
    "hosts": ("hosts", "The machines: add one, list them, test the connection."),
    "doctor": ("doctor", "Check this machine, the hosts and the LLM endpoint."),
    "eval": ("evaluate", "Measure a model on the lab's scenarios."),
    "lab": ("lab", "The simulated hosts: list scenarios, serve one."),
    "completion": ("completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """Loads a verb's module only when the verb is used; `--help` prints the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module, _, attribute = VERBS[name][0].partition(":")
        command = getattr(importlib.import_module(f"opsagent.cli.{module}"), attribute or "command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_module, line) in VERBS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="opsagent")
def cli() -> None:
    """Migrate, launch, diagnose and verify LLM servers (SGLang) on GPU hosts.

    \b
    Examples:
      opsagent run runbooks/migrate.md          # the first run: simulated hosts, nobody is asked
      opsagent plan --model DIR --gpu "RTX A6000:49140" --num-gpus 2 -- --tp 2    # only the numbers
      opsagent diagnose sglang.log              # why did it die
      opsagent hosts add gpu1 --address 10.0.0.5 --user root    # a machine of your own

    `opsagent VERB --help` has examples of each verb. NO_COLOR=1 switches colours off.
    """


def fail(error: Any, *, as_json: bool = False) -> int:
    """Say what is wrong, where, and what to do next (stderr; JSON on stdout if asked); returns the exit code."""
    if as_json:
        click.echo(json.dumps(error.as_json(), ensure_ascii=False))
    place = f"{error.where}: " if error.where else ""
    click.echo(f"opsagent: {place}{error.what}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)
    return int(error.exit_code)


def main() -> None:
    """Entry point. Errors of the product end as one message and an exit code, never as a traceback."""
    if "_OPSAGENT_COMPLETE" in os.environ:
        importlib.import_module("opsagent.cli.completion")  # our own bash completion, before click looks for one
    try:
        result = cli.main(standalone_mode=False)
        sys.exit(int(result) if isinstance(result, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except PermissionError as error:  # wherever a folder of the user's turns out not to be theirs
        from opsagent_tools.errors import InputError

        hint = "let this user read it, or run as the user whose it is"
        sys.exit(fail(InputError(f"cannot be used: {error.strerror}", where=str(error.filename or ""), hint=hint)))
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "hint"):
            sys.exit(fail(error))
        raise
