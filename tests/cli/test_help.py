"""Every verb's help: quick, with `-h`, and with examples that the command line itself accepts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli.lines import accepts, command_lines
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


@pytest.mark.parametrize("path", list(ALL), ids=" ".join)
def test_help_says_what_it_does_and_has_examples_that_parse(path: tuple[str, ...]) -> None:
    text = help_of(path)
    own = [words for words in command_lines(text) if words[: len(path)] == list(path)]
    assert "Examples:" in text
    assert own, f"no example of {' '.join(path)}"
    for words in command_lines(text):
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
