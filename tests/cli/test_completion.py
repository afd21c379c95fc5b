"""Shell completion: by the protocol of each shell's script, and in bash itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner
from terminal import Session

from opsagent.cli import VERBS, cli
from opsagent.cli.completion import VARIABLE

PROGRAM = "import sys; sys.argv[0] = 'opsagent'; from opsagent.cli import main; main()"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user with two runs, two hosts, an SSH alias, and a program called opsagent."""
    for run, runbook in (("7f3a", "migrate"), ("7f99", "launch")):
        folder = tmp_path / "state" / "opsagent" / "runs" / run
        folder.mkdir(parents=True)
        data = {"runbook": {"name": runbook}, "hosts": {"target": "kpro5"}}
        (folder / "events.jsonl").write_text(json.dumps({"data": data}) + "\n")
        os.utime(folder / "events.jsonl", (10_000 - len(list(folder.parent.iterdir())),) * 2)
    (tmp_path / "hosts.toml").write_text(
        '[hosts.kpro5]\naddress = "x"\nlabel = "blue rack"\n[hosts.kpro6]\naddress = "y"\n'
    )
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host krypton k*\n  HostName 10.0.0.1\n")
    program = tmp_path / "opsagent"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}\n")
    program.chmod(0o755)
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home), "PATH": f"{home}:{os.environ['PATH']}", "XDG_STATE_HOME": str(home / "state"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip


def variables(shell: str, line: str) -> dict[str, str]:
    """What the shell's script says of a command line whose last word is incomplete."""
    words = line.split(" ")
    return {
        "bash": {"COMP_LINE": line, "COMP_WORDBREAKS": " =:"},
        "zsh": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "fish": {"COMP_WORDS": line, "COMP_CWORD": words[-1]},
    }[shell]


def asked(home: Path, shell: str, line: str) -> list[str]:
    """What the program answers to that script."""
    kind = get_completion_class(shell)
    assert kind is not None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**environment(home), **variables(shell, line)}.items():
            patch.setenv(name, value)
        patch.chdir(home)
        return kind(cli, {}, "opsagent", VARIABLE).complete().splitlines()


def test_the_program_itself_answers(home: Path) -> None:
    line = "opsagent run runbooks/launch.md --host target=kp"
    env = {**environment(home), **variables("bash", line), VARIABLE: "bash_complete"}
    done = subprocess.run([str(home / "opsagent")], capture_output=True, text=True, env=env, cwd=home, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (asked(home, "bash", line), "")


def plain(home: Path, line: str) -> list[str]:
    return [word.removeprefix("word,") for word in asked(home, "bash", line) if word.startswith("word,")]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("opsagent sho", ["show"]),
        ("opsagent show 7f", ["7f3a", "7f99"]),
        ("opsagent approve 7f3", ["7f3a"]),
        ("opsagent diff 7f3a 7f9", ["7f99"]),
        ("opsagent hosts test k", ["kpro5", "kpro6", "krypton"]),
        ("opsagent hosts add ct --via kpro5", ["kpro5"]),
        ("opsagent doctor --host lo", ["local"]),
        ("opsagent run runbooks/launch.md --host ta", ["target="]),
        ("opsagent run runbooks/launch.md --host target=kp", ["kpro5", "kpro6"]),  # bash splits at =
        ("opsagent run runbooks/launch.md --host=target=kpro5", ["kpro5"]),
        ("opsagent run runbooks/launch.md -p want_con", ["want_context=", "want_concurrency="]),
        ("opsagent run runbooks/mig", ["runbooks/migrate.md"]),
        ("opsagent run --lab sto", ["story"]),
        ("opsagent lab serve sto", ["story"]),
        ("opsagent diagnose --cause spec-needs", ["spec-needs-extra-buffer"]),
        ("opsagent policy explain launch", ["launch_sglang"]),
        ("opsagent policy explain ssh_exec kpro5", ["kpro5"]),
        ("opsagent replay --mode s", ["strict", "sequential"]),
        ("opsagent completion z", ["zsh"]),
        ("opsagent run --appr", ["--approve", "--approve-file"]),
    ],
)
def test_what_is_offered(home: Path, line: str, offered: list[str]) -> None:
    assert plain(home, line) == offered


def test_runs_come_newest_first_and_say_what_they_are(home: Path) -> None:
    assert plain(home, "opsagent show ") == ["7f3a", "7f99"]
    assert asked(home, "zsh", "opsagent show 7f3") == ["plain", "7f3a", "migrate, kpro5"]
    assert [line.split() for line in asked(home, "fish", "opsagent show 7f3")] == [["plain,7f3a", "migrate,", "kpro5"]]


def test_whatever_is_broken_offers_nothing(home: Path) -> None:
    (home / "hosts.toml").write_text("[hosts.\n")
    (home / "state" / "opsagent" / "runs" / "7f3a" / "events.jsonl").write_bytes(b"\xff\n")
    assert plain(home, "opsagent hosts test kp") == []
    assert plain(home, "opsagent show 7f3") == ["7f3a"]
    assert plain(home, "opsagent run nothing.md --host ta") == []


def test_a_path_is_left_to_the_shell(home: Path) -> None:
    assert asked(home, "bash", "opsagent show ./tran") == ["dir,"]
    assert "file," in asked(home, "bash", "opsagent run mine")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed_and_the_shell_reads_it(shell: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["completion", shell], standalone_mode=False)
    assert done.exception is None
    assert "opsagent" in done.stdout
    assert "_OPSAGENT_COMPLETE" in done.stdout
    program = shutil.which(shell)
    if program is not None:
        script = tmp_path / "script"
        script.write_text(done.stdout)
        read = subprocess.run([program, "-n", str(script)], capture_output=True, text=True, check=False)
        assert (read.returncode, read.stderr) == (0, "")


def test_an_unknown_shell_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["completion", "tcsh"]).exit_code == 2


def in_bash(home: Path, line: str) -> list[str]:
    """What bash puts into COMPREPLY for a line: the script is loaded, and the words are split as readline splits them."""
    script = """
        source <(opsagent completion bash)
        COMP_LINE=$1; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
        compopt() { :; }
        _opsagent_completion opsagent
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", line], capture_output=True, text=True, env=environment(home), cwd=home,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_in_bash_itself(home: Path) -> None:
    assert set(in_bash(home, "opsagent ")) == set(VERBS)
    assert in_bash(home, "opsagent show 7f3") == ["7f3a"]
    assert in_bash(home, "opsagent run runbooks/launch.md --host target=kpro5") == ["kpro5"]


@pytest.mark.parametrize(
    ("shell", "ready"),
    [
        (["bash", "--norc", "-i"], "source <(opsagent completion bash)"),
        (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source <(opsagent completion zsh)"),
        (["fish", "-N", "-i"], "opsagent completion fish | source"),
    ],
    ids=["bash", "zsh", "fish"],
)
def test_a_person_presses_tab(home: Path, shell: list[str], ready: str) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"no {shell[0]} here")
    env = {**environment(home), "PS1": "> ", "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home)}
    with Session(shell, env, cwd=home) as session:
        session.line(f"{ready}; echo comp''lete")
        session.expect("^complete", 60)
        session.send("opsagent hosts test kr\t")
        session.see("opsagent hosts test krypton", 60)
        session.send("\x15opsagent run runbooks/launch.md --host target=kry\t")
        session.see("--host target=krypton", 60)
