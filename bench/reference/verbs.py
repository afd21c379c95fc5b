"""docs/reference/verbs.md: every verb's own help, as click prints it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from opsagent.cli import cli

HEAD = """# Verbs

`opsagent VERB --help` prints the same. RUN is an id, the beginning of one, or a path; codes: [exit-codes.md](exit-codes.md).
"""


def page() -> str:
    parts = [HEAD]
    for path, command, text in _every(cli, "opsagent", None):
        level = "#" * min(4, 2 + max(0, path.count(" ") - 1))
        parts.append(f"{level} {path}\n\n```text\n{text.rstrip()}\n```\n")
        assert command.help, path
    return "\n".join(parts)


def _every(command: click.Command, path: str, parent: click.Context | None) -> Iterator[tuple[str, click.Command, str]]:
    context = click.Context(command, parent, path.rpartition(" ")[2], terminal_width=100, max_content_width=100)
    context.help_option_names = ["-h", "--help"]
    yield path, command, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _every(found, f"{path} {name}", context)
