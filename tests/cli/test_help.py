"""Every verb's help: quick, with `-h`, and with examples that the command line itself accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from opsagent import __version__
from opsagent.cli import VERBS, cli

ROOT = Path(__file__).parents[2]


def every(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """(words, command) of the program, its verbs and their sub-verbs."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every(found, (*path, name))


ALL = dict(every(cli))


def help_of(path: tuple[str, ...]) -> str:
    done = CliRunner().invoke(cli, [*path, "-h"], prog_name="opsagent", terminal_width=120, max_content_width=120)
    assert done.exit_code == 0, done.output
    assert done.output == CliRunner().invoke(
        cli, [*path, "--help"], prog_name="opsagent", terminal_width=120, max_content_width=120
    ).output  # fmt: skip
    return done.output


def examples(text: str) -> list[list[str]]:
    """The command lines of a text: `opsagent …`, also behind variables or a pipe, without comments."""
    text = re.sub(r"\\\n\s*", "", text)
    found = []
    for line in text.splitlines():
        at = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+\s+)*(?:[^|`]*\|\s*)?(opsagent\s.*)", line)
        if at and "…" not in line:
            words = shlex.split(at[1], comments=True)
            cut = next((n for n, word in enumerate(words) if word in (">", ">>", "2>", "&&", "<")), len(words))
            found.append(words[1:cut])
    return found


def accepts(words: list[str]) -> None:
    """Parse a command line down to the verb that would run. Raises click.UsageError."""
    command: click.Command = cli
    context = command.make_context("opsagent", list(words))
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)


@pytest.mark.parametrize("path", list(ALL), ids=" ".join)
def test_help_says_what_it_does_and_has_examples_that_parse(path: tuple[str, ...]) -> None:
    text = help_of(path)
    own = [words for words in examples(text) if words[: len(path)] == list(path)]
    assert "Examples:" in text
    assert own, f"no example of {' '.join(path)}"
    for words in examples(text):
        accepts(words)
    for option in ALL[path].params:
        assert not isinstance(option, click.Option) or option.help or option.name == "help", f"{path}: {option.name}"


def test_the_table_of_verbs_says_what_the_verbs_say() -> None:
    """`opsagent --help` imports no verb, so its lines are written twice."""
    for verb in VERBS:
        assert ALL[(verb,)].name == verb


@pytest.mark.parametrize(
    "words",
    [["run", "x.md", "--hots", "a"], ["hosts", "add"], ["hosts", "add", "a", "--port", "0"], ["completion", "tcsh"]],
)
def test_the_parser_of_the_examples_is_not_blind(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        accepts(words)


def test_version() -> None:
    done = CliRunner().invoke(cli, ["--version"], prog_name="opsagent")
    assert (done.exit_code, done.output) == (0, f"opsagent, version {__version__}\n")


def test_the_version_is_the_packages_own() -> None:
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text("utf-8")
