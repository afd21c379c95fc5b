"""`opsagent diagnose`: names the cause of a failed or sick server from its log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from opsagent.cli import fail

if TYPE_CHECKING:
    from opsagent_tools.sglang.diagnosis import Diagnosis

EXIT = {"healthy": 0, "failed": 1, "unknown": 3}


@click.command("diagnose")
@click.argument("log", default="-")
@click.option("--sglang", "version", metavar="VER", help="Version of SGLang that wrote the log, when you know it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(log: str, version: str | None, as_json: bool) -> int:
    """Name the cause of a failed or sick server from LOG (- for stdin).

    Exit code: 0 healthy, 1 failed, 3 the log does not tell, 2 it cannot be read.
    """
    from opsagent_tools.errors import InputError
    from opsagent_tools.sglang.diagnosis import diagnose

    try:
        if log == "-":
            found = diagnose(_chunks(sys.stdin.buffer), version=version)
        else:
            with Path(log).open("rb") as stream:
                found = diagnose(_chunks(stream), version=version)
    except OSError as error:
        reason = error.strerror or str(error)
        return fail(
            InputError(f"cannot read the log: {reason}", where=log, hint="name a file, or - for stdin"), as_json=as_json
        )
    if as_json:
        click.echo(json.dumps(found.model_dump(), ensure_ascii=False))
    else:
        _print(found)
    return EXIT[found.verdict]


def _chunks(stream: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    while chunk := stream.read(size):
        yield chunk


def _print(found: Diagnosis) -> None:
    title = found.cause if found.verdict == "failed" else found.verdict
    click.echo(f"{title}  ({found.verdict}, phase {found.phase}, confidence {found.confidence:g})")
    click.echo(f"  {found.summary}")
    for line in found.evidence:
        click.echo(f"  line {line.line}: {line.text}")
    if found.fix.summary:
        click.echo(f"  fix: {found.fix.summary}")
    for flag, value in found.fix.flags.items():
        click.echo(f"    {flag} " + ("(remove)" if value is None else "" if value is True else str(value)))
    for name, value in found.fix.env.items():
        click.echo(f"    {name}={value}")
    for text in found.fix.commands:
        click.echo(f"    $ {text}")
    if found.fix.version:
        click.echo(f"    move to SGLang {found.fix.version}")
    for need in found.needs:
        click.echo(f"  still to look at: {' '.join(need.argv)}  ({need.why})")
    if len(found.also) > 0:
        click.echo(f"  also seen: {', '.join(found.also)}")
