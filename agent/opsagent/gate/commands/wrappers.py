"""Programs that run another command: each is unwrapped by its own grammar, and what it runs is judged like any argv."""

from __future__ import annotations

import re
from collections.abc import Sequence

from opsagent.gate.argv import Checker, check, known, operators
from opsagent.gate.commands.find import wanted_name
from opsagent.gate.commands.simple import apply, unknown
from opsagent.gate.commands.tables import entries, rules
from opsagent.gate.grammar import Parsed
from opsagent.gate.guards import paths, variables
from opsagent.gate.guards.paths import UNKNOWN
from opsagent.gate.trace import Trace

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
PICKED = re.compile(
    r"\^?\(?(\^?(CUDA|NCCL|NVIDIA|TORCH|LD_|PATH|HOME|LANG|LC_|VIRTUAL_ENV|HF_HOME|HF_HUB)[A-Z_=]*\|?)+\)?",
    re.IGNORECASE,
)
LEADING = {"timeout": 1, "chrt": 1, "taskset": 1, "flock": 1}
"""Operands before the command: a duration, a priority, a mask, a lock file."""


def _own(argv: tuple[str, ...], t: Trace) -> Parsed:
    """A wrapper's own options; one that it does not have is R3, since everything after it would be misread."""
    parsed = rules(argv[0]).parse(argv[1:])
    unknown(parsed, argv[0], t, "R3")
    apply(parsed.given, argv[0], t)
    return parsed


def plain(argv: tuple[str, ...], t: Trace) -> None:
    """timeout 5 CMD, nohup CMD, nice CMD …"""
    parsed = _own(argv, t)
    skip = LEADING.get(argv[0], 0)
    if argv[0] == "flock" and parsed.operands:
        paths.write(t, parsed.operands[0], what="locks")
    rest = parsed.operands[skip:]
    if argv[0] == "unbuffer" and not rest:
        t.say("R3", "argv.empty", "no command")
    if not rest:
        t.say("R0", f"{argv[0]}.bare", f"{argv[0]} without a command")
        return
    check(rest, t)


def env(argv: tuple[str, ...], t: Trace) -> None:
    parsed = _own(argv, t)
    rest = list(parsed.operands)
    if rest[:1] == ["-"]:
        rest.pop(0)
    while rest and (found := ASSIGNMENT.fullmatch(rest[0])):
        variables.assign(t, found[1], found[2])
        rest.pop(0)
    if not rest:
        picks = (
            bool(t.downstream)
            and t.downstream[0][0] == "grep"
            and any(PICKED.fullmatch(w) for w in t.downstream[0][1:])
        )
        inverted = bool(t.downstream) and any(
            re.fullmatch(r"-[a-zA-Z]*v[a-zA-Z]*|--invert-match", w) for w in t.downstream[0][1:]
        )
        secrets = "prints the whole environment, secrets included"
        t.say(
            "R0" if picks and not inverted else "R2",
            "environment.print",
            secrets if not picks else "picks harmless variables",
        )
        return
    check(rest, t)


def sudo(argv: tuple[str, ...], t: Trace) -> None:
    """sudo, doas: assignments may stand before the command."""
    parsed = _own(argv, t)
    rest = list(parsed.operands)
    while rest and (found := ASSIGNMENT.fullmatch(rest[0])):
        variables.assign(t, found[1], found[2])
        rest.pop(0)
    if parsed.has("-E", "--preserve-env"):
        t.say("R1", "sudo.environment", "sudo keeps the caller's environment")
    if not rest:
        t.say(
            "R0" if parsed.has("-l", "--list", "-v", "-k", "-K", "--validate") else "R3",
            "sudo.bare",
            "sudo without a command",
        )
        return
    check(rest, t)


def as_user(argv: tuple[str, ...], t: Trace) -> None:
    """su, runuser, setpriv: `runuser -u USER -- CMD` is followed, a login shell is not."""
    parsed = _own(argv, t)
    if argv[0] in ("runuser", "setpriv") and parsed.operands and (parsed.has("-u", "--user") or argv[0] == "setpriv"):
        check(parsed.operands, t)
    elif argv[0] == "setpriv" and parsed.has("-d", "--dump"):
        t.say("R0", "read", "setpriv tells about itself")
    else:
        for each in parsed.values("-c", "--command", "--session-command"):
            from opsagent.gate.commands.shells import text

            text(each, t)
        t.say("R3", "shell.free", f"{argv[0]} opens a shell")


def root(argv: tuple[str, ...], t: Trace) -> None:
    """chroot, nsenter, unshare: the command's paths are those of another root."""
    parsed = _own(argv, t)
    rest = parsed.operands[1:] if argv[0] == "chroot" else parsed.operands
    t.say("R2", f"{argv[0]}.root", f"{argv[0]} runs in another root or name space")
    check(rest or ["sh"], t)


def watch(argv: tuple[str, ...], t: Trace) -> None:
    """watch joins its words and gives them to a shell, unless -x is there."""
    parsed = _own(argv, t)
    if parsed.has("-x", "--exec") or not any(re.search(r"[^\w@%+=:,./ -]", word) for word in parsed.operands):
        words = parsed.operands if len(parsed.operands) != 1 else parsed.operands[0].split()
        check(words, t)
    else:
        from opsagent.gate.commands.shells import text

        text(" ".join(parsed.operands), t)


def bus(argv: tuple[str, ...], t: Trace) -> None:
    """busybox APPLET …"""
    if len(argv) == 1 or argv[1].startswith("-"):
        t.say(
            "R0" if argv[1:] in ((), ("--list",), ("--help",)) else "R3",
            "busybox.bare",
            f"{argv[0]} lists its programs",
        )
        return
    check(argv[1:], t)


def command(argv: tuple[str, ...], t: Trace) -> None:
    """The shell's own `command`, `builtin`, `exec`: `command -v X` only looks."""
    parsed = _own(argv, t)
    if parsed.has("-v", "-V") and argv[0] == "command":
        operators(parsed.operands, t)
        t.say("R0", "read", "looks for a program")
    elif not parsed.operands:
        t.say("R3", "argv.empty", "no command")
    else:
        check(parsed.operands, t)


def hints(t: Trace) -> list[str] | None:
    """What the stage before hands to xargs: literal words, start folders of find (with the unknown part), or None."""
    if t.stdin is not None and not t.upstream:
        return t.stdin.split()
    if not t.upstream:
        return None
    before = t.upstream[-1]
    if before[0] in ("echo", "printf") and not any("%" in w or "\\" in w for w in before[1:]):
        return [word for each in before[1:] for word in each.split()]
    if before[0] == "find" or (before[0] == "fd" and len(before) > 2):
        starts = []
        for word in before[1:]:
            if word.startswith(("-", "(", "!")):
                break
            starts.append(word.rstrip("/") + "/" + UNKNOWN + wanted_name(before))
        return starts or None
    return None


def xargs(argv: tuple[str, ...], t: Trace) -> None:
    """The words that xargs adds come from the stage before; what is not known of them is a doubt."""
    parsed = _own(argv, t)
    if parsed.has("--show-limits"):
        t.say("R0", "read", "xargs shows limits")
    run = list(parsed.operands) or ["echo"]
    words = hints(t) if not parsed.has("-a", "--arg-file") else None
    marker = (parsed.values("-I", "--replace", "-i") or ["{}"])[-1] if parsed.has("-I", "-i", "--replace") else ""
    given = words if words is not None else [UNKNOWN]
    filled = [[part.replace(marker, word) for part in run] for word in given] if marker else [run + list(given)]
    for each in filled:
        check(each, t)
    if words is None and known(run[0]) and any(word.startswith("-") or word == UNKNOWN for word in given):
        t.effect("the last words are known only when it runs")


def systemd_run(argv: tuple[str, ...], t: Trace) -> None:
    """A transient unit: its properties may write and run things of their own."""
    parsed = _own(argv, t)
    unit = (parsed.values("--unit", "-u") or [""])[-1]
    ours = unit.startswith("opsagent-")
    t.say("R1" if ours else "R2", "systemd-run.start", f"starts the unit {unit or '(unnamed)'}")
    for each in parsed.values("-p", "--property"):
        _property(each, t)
    for each in parsed.values("-E", "--setenv"):
        name, _, value = each.partition("=")
        variables.assign(t, name, value)
    if parsed.operands:
        check(parsed.operands, t)
    elif not parsed.has("--shell", "-S"):
        t.say("R3", "argv.empty", "no command")


QUIET = re.compile(
    r"(WorkingDirectory|Restart|RestartSec|KillMode|KillSignal|TimeoutStopSec|TimeoutStartSec|RuntimeMaxSec|Type|RemainAfterExit|Nice|"
    r"Limit[A-Z]+|Memory(Max|High|Low|SwapMax)|CPU(Quota|Weight|Affinity)|IOWeight|TasksMax|OOMScoreAdjust|OOMPolicy|Description|"
    r"CollectMode|StartLimit[A-Za-z]+|SyslogIdentifier|PrivateTmp|NoNewPrivileges|Protect[A-Za-z]+|User|Group|Slice|Delegate|SendSIGKILL)"
)


def _property(text: str, t: Trace) -> None:
    name, _, value = text.partition("=")
    if name in ("StandardOutput", "StandardError", "StandardInput"):
        kind, _, place = value.partition(":")
        if place and kind in ("file", "append", "truncate"):
            (paths.read if name == "StandardInput" else paths.write)(t, place)
        elif kind not in ("null", "journal", "inherit", "journal+console", "kmsg", "tty"):
            t.say("R3", "systemd-run.property", f"{text}")
    elif name == "Environment":
        for word in value.split():
            variables.assign(t, *word.partition("=")[::2])
    elif name == "EnvironmentFile":
        paths.metadata(t, value.lstrip("-"))
    elif not QUIET.fullmatch(name):
        t.say("R3", "systemd-run.property", f"the property {name} is not one that we know to be harmless")


def not_followed(names: Sequence[str]) -> dict[str, Checker]:
    return {name: plain for name in names if name in entries()}


PLAIN = ("timeout", "nohup", "setsid", "nice", "ionice", "chrt", "taskset", "numactl", "stdbuf", "unbuffer", "time", "flock",
         "prlimit", "systemd-inhibit", "cgexec")  # fmt: skip
COMMANDS: dict[str, Checker] = {
    **dict.fromkeys(PLAIN, plain), "env": env, "sudo": sudo, "doas": sudo, "su": as_user, "runuser": as_user,
    "setpriv": as_user, "chroot": root, "nsenter": root, "unshare": root, "watch": watch, "busybox": bus, "toybox": bus,
    "command": command, "builtin": command, "exec": command, "xargs": xargs, "parallel": xargs, "systemd-run": systemd_run,
}  # fmt: skip
