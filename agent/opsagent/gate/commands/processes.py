"""Processes: looking at them is a read; a signal goes only to a process that this run started, all else needs a person."""

from __future__ import annotations

import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.services import GUARDS
from opsagent.gate.commands.simple import apply, parse
from opsagent.gate.commands.tables import rules
from opsagent.gate.guards.servers import process_ours, process_words
from opsagent.gate.trace import Trace

SIGNAL = re.compile(r"-([0-9]+|(SIG)?[A-Z][A-Z0-9+-]*)")


def kill(argv: tuple[str, ...], t: Trace) -> None:
    words = list(argv[1:])
    targets: list[str] = []
    quiet = signalled = False
    while words:
        word = words.pop(0)
        if word in ("-l", "-L", "--list", "--table"):
            t.say("R0", "read", "lists signals")
            return
        if word in ("-s", "--signal", "-n", "-q", "--queue", "--timeout") and words:
            signalled = True
            quiet = words.pop(0) in ("0", "00")
        elif word == "-0" and not targets and not signalled:
            quiet = signalled = True
        elif word == "--":
            targets += words
            break
        elif SIGNAL.fullmatch(word) and not targets and not signalled and words:
            signalled = True
        else:
            targets.append(word)
    for each in targets:
        _target(each, t, quiet=quiet)
    if not targets:
        t.say("R3", "kill.unknown", "kill without a process")


def _target(word: str, t: Trace, *, quiet: bool) -> None:
    if quiet and re.fullmatch(r"[0-9]+", word):
        t.say("R0", "read", f"asks whether pid {word} lives")
    elif re.fullmatch(r"-?0*[01]|-[0-9]+|0", word) and word not in ("-0",):
        if word.lstrip("-0") in ("", "1"):
            t.say("R3", "kill.everything", f"kill {word} reaches every process, a whole group, or the first process")
            return
        pid = int(word[1:])
        ours = process_ours(t, pid)
        t.say("R1" if ours else "R3", "kill.group", f"signals the whole group {pid}: {process_words(t, pid)}")
    elif re.fullmatch(r"[0-9]+", word):
        pid = int(word)
        ours = process_ours(t, pid)
        what = "which this run started" if ours else "not known to be started by this run"
        t.say("R1" if ours else "R2", "kill.own" if ours else "kill.foreign", f"signals pid {pid}, {what}")
        t.effect(f"kills {process_words(t, pid)}")
    else:
        t.say("R3", "kill.unknown", f"kill {word!r}: which process that is is known only when it runs")


def by_name(argv: tuple[str, ...], t: Trace) -> None:
    """pkill, killall …: nobody can say beforehand which processes that are."""
    if argv[1:] in (("-l",), ("--list",)):
        t.say("R0", "read", "lists signals")
        return
    if any(GUARDS.fullmatch(word) for word in argv[1:]):
        t.say("X", "process.guard", f"{argv[0]} ends what watches over the host")
    t.say("R3", f"{argv[0]}.by-name", f"{argv[0]} ends every process that matches, whosesoever it is")


def fuser(argv: tuple[str, ...], t: Trace) -> None:
    kills = any(
        word == "--kill" or (word.startswith("-") and not word.startswith("--") and "k" in word) for word in argv[1:]
    )
    operators(argv[1:], t)
    if kills:
        t.say("R3", "fuser.kill", "fuser -k ends every process that uses the file")
    else:
        t.say("R0", "read", "fuser tells who uses a file")


def ps(argv: tuple[str, ...], t: Trace) -> None:
    """`e` among BSD options (and `-o environ`) prints environments, tokens included."""
    t.say("R0", "read", "ps lists processes")
    operators(argv[1:], t)
    if any("environ" in re.split(r"[,=: ]", word) for word in argv[1:]):
        t.say("X", "secret.environ", "prints the environments of processes")
    words, value = list(argv[1:]), ""
    while words:
        word = words.pop(0)
        if word in (
            "-o",
            "-O",
            "o",
            "O",
            "--format",
            "-p",
            "-C",
            "-u",
            "-U",
            "-G",
            "-g",
            "-s",
            "-t",
            "--sort",
            "--pid",
            "--ppid",
            "-q",
            "k",
            "-k",
        ):
            value = words.pop(0) if words else ""
        elif word.startswith("-") or re.fullmatch(r"[0-9,]+", word):
            value = word
            if re.fullmatch(r"-[A-Za-z]*E[A-Za-z]*", word):
                t.say("X", "secret.environ", "prints the environments of processes")
        elif re.match(r"[A-Za-z]*e", word) and not re.match(r"[A-Za-z]*?[oOkptUCG]", word.split("e")[0] + ""):
            t.say("X", "secret.environ", "prints the environments of processes")
        if "environ" in value:
            t.say("X", "secret.environ", "prints the environments of processes")


def ss(argv: tuple[str, ...], t: Trace) -> None:
    parsed = rules("ss").parse(argv[1:])
    for each in parsed.unknown:
        t.say("R2", "ss.unknown-option", f"ss {each} is not an option that we know")
    apply(parsed.given, "ss", t)
    t.say("R0", "read", "ss lists sockets")
    for word in parsed.operands:
        if re.search(r"[;`\n]|\$\(", word) or word in ("&&", "||", "|", ";"):
            t.say("R3", "shell.operator", f"{word!r} as an argument")


def debugger(argv: tuple[str, ...], t: Trace) -> None:
    """py-spy dump only looks (it stops the process for a moment); all other debuggers can do anything in it."""
    if argv[0] == "py-spy" and argv[1:2] == ("dump",) and set(argv[2:]) & {"-p", "--pid"}:
        t.say("R1", "py-spy.dump", "stops a process for a moment to read its stack")
        if {"-l", "--locals"} & set(argv):
            t.say("R2", "py-spy.locals", "prints local variables, secrets included")
        return
    t.say("R3", f"{argv[0]}.debug", f"{argv[0]} reads or changes the memory of a process, or runs a command")


def priority(argv: tuple[str, ...], t: Trace) -> None:
    t.say("R2", f"{argv[0]}.priority", f"{argv[0]} changes how processes run")


def multiplexer(argv: tuple[str, ...], t: Trace) -> None:
    """tmux and screen: listing is a read; everything else runs text in a terminal."""
    listing = argv[1:2] in (
        ("ls",),
        ("list-sessions",),
        ("-ls",),
        ("-list",),
        ("list-windows",),
        ("list-panes",),
        ("-V",),
        ("-v",),
    )
    t.say(
        "R0" if listing and len(argv) < 6 else "R3",
        f"{argv[0]}.session",
        f"{argv[0]} {'lists sessions' if listing else 'drives a terminal'}",
    )
    operators(argv[1:], t)


def pidof(argv: tuple[str, ...], t: Trace) -> None:
    parse(argv, rules(argv[0]), t)


COMMANDS: dict[str, Checker] = {
    "kill": kill, **dict.fromkeys(("pkill", "killall", "killall5", "skill", "xkill", "slay", "snice"), by_name),
    "fuser": fuser, "ps": ps, "ss": ss,
    **dict.fromkeys(["gdb", "strace", "ltrace", "perf", "bpftrace", "bpftool", "ftrace", "trace-cmd", "systemtap",
    "stap", "py-spy", "gcore", "criu", "valgrind", "rr", "lldb"], debugger),
    "renice": priority, **dict.fromkeys(("tmux", "screen", "byobu", "zellij", "abduco", "dtach", "script",
    "scriptreplay", "expect"), multiplexer),
}  # fmt: skip
