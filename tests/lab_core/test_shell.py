"""The lab's shell: what it reads, what it refuses, and that quoting of any bytes comes back as it went."""

from __future__ import annotations

import contextlib
import io
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_core_small import SMALL

from opsagent_lab import build, processes, scenario
from opsagent_lab.program import Process
from opsagent_lab.programs.shells import BUILTINS
from opsagent_lab.shell import run_login
from opsagent_lab.shell_parse import ShellSyntax, parse
from opsagent_lab.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return build.build(scenario.parse("small", SMALL), 1000.0)


def shell(world: World, text: str, stdin: str = "") -> tuple[int, str, str]:
    host = world.host("pve")
    out, err = io.BytesIO(), io.BytesIO()
    env = {"PATH": processes.DEFAULT_PATH, "HOME": "/root"}
    sim = processes.add(world, host, ["bash"], env=env)
    process = Process(
        world, host, sim, ["bash"], env, io.BytesIO(stdin.encode()), lambda b: _put(out, b), lambda b: _put(err, b)
    )
    try:
        code = run_login(process, text, BUILTINS)
    finally:
        processes.end(world, host, sim.pid)
    assert world.bugs == []
    return code, out.getvalue().decode(), err.getvalue().decode()


def _put(buffer: io.BytesIO, data: bytes) -> None:
    buffer.write(data)


@pytest.mark.parametrize(
    ("text", "code", "out"),
    [
        ("echo a b; exit $?", 0, "a b\n"),
        ("false; exit $?", 1, ""),
        ("false; echo $?", 0, "1\n"),
        ("echo x | cat | tr x y", 0, "y\n"),
        ("A=1 env | grep ^A=", 0, "A=1\n"),
        ("A='x y'; echo $A \"$A\" '$A'", 0, "x y x y $A\n"),
        ("true && echo yes || echo no", 0, "yes\n"),
        ("false && echo yes || echo no", 0, "no\n"),
        ("echo err >&2; echo out 2>/dev/null", 0, "out\n"),
        ("echo hi > /tmp/f; cat < /tmp/f; echo more >> /tmp/f; cat /tmp/f", 0, "hi\nhi\nmore\n"),
        ("cd /etc && pwd", 0, "/etc\n"),
        ("ls /etc/host*", 0, "/etc/hostname\n"),
        ("echo '/etc/host*' /nope*", 0, "/etc/host* /nope*\n"),
        ("! true; echo $?", 0, "1\n"),
        ("set -e; false; echo not reached", 1, ""),
        ("set -o pipefail; false | true", 1, ""),
        ("command -v cat; command -v nope", 1, "/usr/bin/cat\n"),
        ("timeout -k 2 5 sh -c 'echo in; exit 3'; echo $?", 0, "in\n3\n"),
        ("timeout 2 sleep 50", 124, ""),
        ("sh -c 'echo $0 $1 $#' name one", 0, "name one 1\n"),
        ("[ -f /root/notes.txt ] && test 2 -gt 1 && echo ok", 0, "ok\n"),
        ("head -n 1 /root/notes.txt; tail -n 1 /root/notes.txt", 0, "one\nthree\n"),
        ("# nothing", 0, ""),
    ],
)
def test_what_it_reads(world: World, text: str, code: int, out: str) -> None:
    assert shell(world, text)[:2] == (code, out)


@pytest.mark.parametrize(
    "text",
    [
        "for x in a; do echo $x; done", "echo $(id)", "echo `id`", "if true; then echo; fi", "f() { echo; }", "echo 'open",
        'echo "open', "cat <<E\nx\nE", "a | | b", "; ls", "ls &&", "echo ${x:-y}", "(ls)", "ls >", "while true; do :; done",
    ],
)  # fmt: skip
def test_beyond_the_subset_is_a_syntax_error(world: World, text: str) -> None:
    code, out, err = shell(world, text)
    assert (code, out) == (2, "")
    assert err.startswith("bash: -c: line 1: ")


def test_unknown_programs_and_files_that_cannot_run(world: World) -> None:
    assert shell(world, "nonesuch -x") == (127, "", "bash: line 1: nonesuch: command not found\n")
    assert shell(world, "/root/notes.txt") == (126, "", "bash: line 1: /root/notes.txt: Permission denied\n")
    assert shell(world, "/no/such")[0] == 127
    assert shell(world, "cat < /nope")[0] == 1


PROGRAMS = (
    "cat cp df du free grep head id journalctl kill ln ls lspci mkdir modprobe mv nproc nvidia-smi pct ps readlink rm "
    "sha256sum ss stat systemctl systemd-run tail tee touch uname"
)


@pytest.mark.parametrize("name", PROGRAMS.split())
def test_unknown_options_are_usage_errors(world: World, name: str) -> None:
    code, out, err = shell(world, f"{name} --no-such-option-here x")
    assert code != 0
    assert out if name == "nvidia-smi" else err and not out  # nvidia-smi complains on stdout


WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=5)


@given(WORDS)
@settings(max_examples=150, deadline=None)
def test_any_quoted_words_come_back(world: World, words: list[str]) -> None:
    code, out, _err = shell(world, shlex.join(["printf", "%s\\0", *words]))
    assert code == 0
    assert out.split("\0") == [w for w in words] + [""]


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(ShellSyntax):
        parse(text)
