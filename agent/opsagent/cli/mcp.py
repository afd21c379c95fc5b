"""`opsagent mcp`: the tools for the assistants that people already use, over the Model Context Protocol."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsagent.cli import fail
from opsagent.cli.candidates import host_names, scenarios

if TYPE_CHECKING:
    from opsagent.mcp_server.session import McpSession


@click.command("mcp", short_help="Serve the tools to an assistant (MCP over stdio).")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    shell_complete=host_names,
    help="A host that the assistant may use (also ROLE=NAME).",
)
@click.option("--hosts", "hosts_file", default="", metavar="FILE", help="hosts.toml; without --host: all of its hosts.")
@click.option("--lab", default="", metavar="SCENARIO", shell_complete=scenarios, help="Simulated hosts.")
@click.option(
    "--approve", type=click.Choice(["declared", "never"]), default="declared", show_default=True,
    help="What happens to calls that are no reads: they wait for a person, or they are refused.",
)  # fmt: skip
@click.option("--approve-file", default="", metavar="FILE", help="Pre-approved calls by hash; read again at each call.")
@click.option("--resume", default="", metavar="RUN", help="Go on with an earlier session.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder of the session's run.")
def command(
    hosts: tuple[str, ...], hosts_file: str, lab: str, approve: str, approve_file: str, resume: str, out: Path | None
) -> int:
    """Serve the tools to an assistant over stdin and stdout, until it closes them. Not for typing into.

    The session is a run: it is journaled, its calls go through the gate, and what is no read waits until a person says
    `opsagent approve RUN CALL` in another terminal; then the assistant makes the same call again, and it runs once.

    \b
    Examples:
      opsagent mcp                               # no hosts: plan, diagnose, runs, show
      opsagent mcp --host gpu4                   # a host of hosts.toml or ~/.ssh/config
      opsagent mcp --lab hybrid                  # simulated hosts
      {"mcpServers": {"opsagent": {"command": "opsagent", "args": ["mcp", "--host", "gpu4"]}}}
    """
    from opsagent_tools.errors import InputError, OpsError

    try:
        session = session_for(hosts, hosts_file, lab, approve, approve_file, resume, out)
        from opsagent.mcp_server.server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        return fail(
            InputError("the package `mcp` is not installed", hint="in opsagent's own folder: pip install '.[mcp]'")
        )
    except OpsError as error:
        return fail(error)
    return _serve(session, serve)


def session_for(
    hosts: tuple[str, ...] = (), hosts_file: str = "", lab: str = "", approve: str = "declared", approve_file: str = "",
    resume: str = "", out: Path | None = None,
) -> McpSession:  # fmt: skip
    """The session that the command line describes; nothing is begun yet. Raises InputError."""
    from opsagent.config import layers
    from opsagent.gate.approvals import read_file
    from opsagent.gate.policy_file import policy_from
    from opsagent.mcp_server.book import session_places
    from opsagent.mcp_server.session import McpSession
    from opsagent.session import Wish
    from opsagent_tools.errors import InputError

    if lab and (hosts or hosts_file):
        raise InputError("--lab and --host do not go together", hint="the lab brings its own hosts")
    policy_from(layers())  # a fault in it should be seen now, not at the first call
    if approve_file:
        read_file(Path(approve_file))
    if resume and (hosts or hosts_file or lab):
        raise InputError("--resume brings its own hosts", hint=f"opsagent mcp --resume {resume}")
    book, places = session_places(hosts, hosts_file, lab, Path("/") if resume else Path.cwd())
    wish = Wish(
        runbook=book, places=places, chooser="assistant (MCP)", approve=approve, approve_file=approve_file, folder=out,
        notice=lambda text: click.echo(text, err=True),
    )  # fmt: skip
    return McpSession(wish, resume=resume)


def _serve(session: McpSession, serve: object) -> int:
    """Until stdin ends, or a signal: then the journal gets its end first, because stdin may stay open for ever."""
    import anyio

    def end(number: int, _frame: object) -> None:
        session.close()
        os._exit(0 if number == signal.SIGTERM else 130)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if sys.stdin.isatty():
        click.echo("opsagent mcp speaks the Model Context Protocol: an assistant starts it. Ctrl-C ends it.", err=True)
    try:
        if session.resume:
            session.open()
        anyio.run(serve, session)  # type: ignore[arg-type]
    finally:
        session.close()
    return 0
