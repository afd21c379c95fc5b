"""`opsagent completion SHELL`: the script that makes the shell complete verbs, options, runs, hosts and runbooks."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
)

VARIABLE = "_OPSAGENT_COMPLETE"
BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' kind value
    COMPREPLY=()
    while IFS=',' read -r kind value; do
        case $kind in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY+=(); compopt -o default ;;
            word) COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
             %(complete_var)s=bash_complete "$1" 2>/dev/null)
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Bash splits words at `=` and `:`, so `--host target=kp` reaches click in pieces; we read the line."""

    source_template = BASH

    @staticmethod
    def _check_version() -> None:
        """The script needs `compopt` (4.0) and `nosort` (4.4); asking bash would need one here."""

    def get_completion_args(self) -> tuple[list[str], str]:
        from click.shell_completion import split_arg_string

        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Only what follows the last `=` or `:` replaces what bash takes for the word, where bash splits there."""
        word = self.get_completion_args()[1]
        word = word.partition("=")[2] if word.startswith("-") else word
        breaks = set(os.environ.get("COMP_WORDBREAKS", "=:")) & set("=:")
        done = max((word.rfind(mark) for mark in breaks), default=-1) + 1
        value = item.value[done:] if item.type == "plain" else ""
        return f"{'word' if item.type == 'plain' else item.type},{value}"


add_completion_class(Bash)


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the script that completes opsagent's verbs, options, runs, hosts, runbooks and scenarios in SHELL.

    \b
    Examples:
      opsagent completion bash > ~/.local/share/bash-completion/completions/opsagent
      opsagent completion zsh > "${fpath[1]}/_opsagent"
      opsagent completion fish > ~/.config/fish/completions/opsagent.fish
    """
    from opsagent.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    made: ShellComplete = kind(cli, {}, "opsagent", VARIABLE)
    click.echo(made.source(), nl=False)
    return 0
