"""Command lines that people read: found in a text, and parsed by the program's own parser without running anything."""

from __future__ import annotations

import re
import shlex

import click

from opsagent.cli import cli

ENDS = (">", ">>", "2>", "<", "&&", "||", "|")
LINE = re.compile(r"\s*(?:\$ |export )?(?:[A-Z_]+=\S+\s+)*(?:[^|`]*\|\s*)?(opsagent\s.*)")


def command_lines(text: str) -> list[list[str]]:
    """The words after `opsagent` of each line that is a command, also behind variables or a pipe, without comments."""
    text = re.sub(r"\\\n\s*", "", text)
    found = []
    for line in text.splitlines():
        at = LINE.fullmatch(line)
        if at and "…" not in at[1].partition("  #")[0]:
            words = shlex.split(re.sub(r"\$\([^)]*\)", "--tp 2", at[1]), comments=True)
            end = next((number for number, word in enumerate(words) if word in ENDS), len(words))
            found.append(words[1:end])
    return found


def accepts(words: list[str]) -> None:
    """Parse a command line down to the verb that would run. Raises click.UsageError."""
    if words in (["--version"], ["--help"], ["-h"]):
        return
    command: click.Command = cli
    context = command.make_context("opsagent", list(words))
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
