"""`opsagent diagnose`: names the cause of a failed or sick server from its log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from opsagent.cli import fail
from opsagent.cli.candidates import causes

if TYPE_CHECKING:
    from opsagent_tools.sglang.diagnosis import Diagnosis

EXIT = {"healthy": 0, "failed": 1, "unknown": 3}


@click.command("diagnose")
@click.argument("log", default="-")
@click.option("--sglang", "version", metavar="VER", help="Version of SGLang that wrote the log, when you know it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--learn", is_flag=True, help="Write a new signature from LOG, with its test. Needs --cause.")
@click.option("--cause", metavar="SLUG", shell_complete=causes, help="What LOG shows, for --learn.")
@click.option("--line", type=click.IntRange(min=1), help="The decisive line of LOG, for --learn.")
def command(log: str, version: str | None, as_json: bool, learn: bool, cause: str | None, line: int | None) -> int:
    """Name the cause of a failed or sick server from LOG (- for stdin), the lines that prove it, and a fix.

    \b
    Examples:
      opsagent diagnose sglang.log
      journalctl -u sglang --no-pager | opsagent diagnose - --json
      opsagent diagnose new.log --learn --cause port-in-use --line 12    # a signature of your own, with its test

    Exit code: 0 healthy, 1 failed, 3 the log does not tell, 2 it cannot be read.
    """
    from opsagent_tools.errors import InputError, OpsError

    try:
        if learn:
            if not cause:
                hint = "docs/reference/causes.md lists the causes"
                raise InputError("--learn needs --cause SLUG", where="--learn", hint=hint)
            return _learn(log, cause, line)
        found = diagnose_log(log, version)
    except OSError as error:
        reason = error.strerror or str(error)
        problem = InputError(f"cannot read the log: {reason}", where=log, hint="name a file, or - for stdin")
        return fail(problem, as_json=as_json)
    except OpsError as error:
        return fail(error, as_json=as_json)
    if as_json:
        click.echo(json.dumps(found.model_dump(), ensure_ascii=False))
    else:
        _print(found)
    return EXIT[found.verdict]


def learned_folder() -> Path:
    """Where learned signatures and their examples are kept."""
    from opsagent.xdg import config_home

    return config_home() / "learned"


def diagnose_log(log: str, version: str | None) -> Diagnosis:
    """The diagnosis of a file (- for stdin), with the learned signatures. Raises OSError."""
    from opsagent_tools.sglang.diagnosis import diagnose

    learned = _learned()
    if log == "-":
        return diagnose(_chunks(sys.stdin.buffer), version=version, learned=learned)
    with Path(log).open("rb") as stream:
        return diagnose(_chunks(stream), version=version, learned=learned)


def _learned() -> str:
    path = learned_folder() / "signatures.toml"
    return path.read_text("utf-8") if path.is_file() else ""


def _learn(log: str, cause: str, line: int | None) -> int:
    from opsagent_tools.sglang.diagnosis.learn import learn

    data = sys.stdin.buffer.read() if log == "-" else Path(log).read_bytes()
    known = _learned()
    made = learn(data, cause, line=line, known=known)
    folder = learned_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "signatures.toml").write_text(known + made.toml, "utf-8")
    with (folder / "examples.txt").open("a", encoding="utf-8") as stream:
        stream.write(made.example)
    click.echo(f"learned from line {made.line}: {made.pattern}")
    click.echo(f"  signature: {folder / 'signatures.toml'}\n  its test:  {folder / 'examples.txt'}")
    return 0


def _chunks(stream: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    while chunk := stream.read(size):
        yield chunk


def _print(found: Diagnosis) -> None:
    title = found.cause if found.verdict == "failed" else found.verdict
    click.echo(f"{title}  ({found.verdict}, phase {found.phase}, confidence {found.confidence:g})")
    click.echo(f"  {found.summary}")
    for line in found.evidence:
        click.echo(f"  line {line.line}: {line.text}")
    for link in found.chain if len(found.chain) > 1 else []:
        click.echo(f"  chain, line {link.line}: {link.type}: {link.message[:120]}")
    if found.fix.summary:
        click.echo(f"  fix: {found.fix.summary}")
    for flag, value in found.fix.flags.items():
        click.echo(f"    {flag} " + ("(remove)" if value is None else "" if value is True else str(value)))
    for name, text in found.fix.env.items():
        click.echo(f"    {name}={text}")
    for text in found.fix.commands:
        click.echo(f"    $ {text}")
    if found.fix.version:
        click.echo(f"    move to SGLang {found.fix.version}")
    for need in found.needs:
        click.echo(f"  still to look at: {' '.join(need.argv)}  ({need.why})")
    for said in found.ruled_out:
        click.echo(f"  ruled out: {said}")
    if found.also:
        click.echo(f"  also seen: {', '.join(found.also)}")
