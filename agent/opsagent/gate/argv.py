"""One argv: which program it really is, whether we know it, and its checker's word. Used again for every wrapped command."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from opsagent.gate.guards import places
from opsagent.gate.guards.paths import UNKNOWN, normal
from opsagent.gate.policy import under
from opsagent.gate.trace import MAX_DEPTH, Trace
from opsagent.gate.words import words

Checker = Callable[[tuple[str, ...], Trace], None]
"""Looks at argv (program name first, folders removed) and adds findings."""

TRUSTED = (
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/local/cuda/bin",
    "/snap/bin",
)
ENVIRONMENT = re.compile(r"/(opt|srv|usr/local|root)(/[^/]+)*/s?bin/[^/]+")
"""Where serving environments live: only known programs of such an environment may be run from there."""
SHARED = ("/tmp", "/var/tmp")
"""Roots to which everybody can write: no program is run from there."""
ENVIRONMENT_PROGRAMS = re.compile(
    r"(python|pip)[0-9.]*|uv|uvx|hf|huggingface-cli|sglang|nvcc|ninja|py-spy|nvidia-smi|transformers"
)
HIDDEN = re.compile(
    "[\x01-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\uffff\U000e0000-\U000e007f]"
)
OPERATORS = frozenset(";|&") | {
    "&&",
    "||",
    ";;",
    "|&",
    ">",
    ">>",
    "<",
    "<<",
    "<<<",
    "2>",
    "2>&1",
    "&>",
    ">|",
    "1>",
    ">&2",
    "&>>",
    "2>/dev/null",
    ">/dev/null",
}


@lru_cache(maxsize=1)
def registry() -> dict[str, Checker]:
    """Program name → checker, of all families."""
    from opsagent.gate import commands

    return commands.table()


def versioned(name: str) -> str:
    """`python3.12` is python, `pip3` is pip, `gcc-12` stays what it is."""
    found = re.fullmatch(r"(python|pip|perl|ruby|lua|php|node|tclsh)[0-9]+(\.[0-9]+)*", name)
    return found[1] if found else name


def known(name: str) -> bool:
    """Whether we have a checker for a program of this name."""
    return versioned(posixpath.basename(name)) in registry()


def check(argv: Sequence[str], t: Trace) -> None:
    """Classify one argv (a stage of a pipe, or what a wrapper runs)."""
    words = tuple(argv)
    if not words or not words[0]:
        t.say("R3", "argv.empty", "there is no program to run")
        return
    if t.depth >= MAX_DEPTH:
        t.say("R3", "argv.too-deep", f"more than {MAX_DEPTH} wrappers around each other")
        return
    if not _text(words, t):
        return
    name = _program(words[0], t)
    if name is None:
        return
    checker = registry()[name]
    plain = len(words) <= 4 and all(word.replace("-", "").isalpha() and word[0] != "-" for word in words[1:-1])
    subcommand = words[-1] == "--help" and plain and name in SUBCOMMANDS
    if ((len(words) == 2 and words[1] in ("--version", "--help")) or subcommand) and name not in NO_HELP:
        t.say("R0", "help", f"{name} only tells about itself")
        return
    if name not in MAY_HOLD:
        operators(words[1:], t)
    t.depth += 1
    try:
        checker((name, *words[1:]), t)
    finally:
        t.depth -= 1


MAY_HOLD = words("argv", "may hold operators")
"""Programs of which a lone operator may be a value, or whose wrapped command is looked at by itself."""
SUBCOMMANDS = frozenset(
    {"docker", "podman", "uv", "pip", "hf", "huggingface-cli", "kubectl", "systemctl", "conda", "helm"}
)
NO_HELP = frozenset({"eval", "exec", "source", ".", "sh", "bash", "dash", "echo", "printf", "kill", "test", "["})


def _text(words: tuple[str, ...], t: Trace) -> bool:
    """Words that would be shown as something else than they are. False when there is too much to look at."""
    if any(HIDDEN.search(word) for word in words):
        t.say("R3", "text.hidden", "control, bidi or zero-width characters in the arguments")
    if any("\x00" in word.replace(UNKNOWN, "") for word in words):
        t.say("R3", "text.hidden", "a NUL byte in the arguments")
    if len(words) > 500 or sum(map(len, words)) > 100_000:
        t.say("R3", "argv.too-long", "too long for anybody to read")
        return False
    return True


def _program(word: str, t: Trace) -> str | None:
    """The checker's key of the program, or None when it is unknown or must not be trusted."""
    base = versioned(posixpath.basename(word))
    if posixpath.dirname(word) in ("/etc/init.d", "/etc/rc.d/init.d"):
        registry()["service"](("service", base, "stop"), t)
        t.say("R3", "program.init-script", f"{word} starts or stops a service")
        return None
    if UNKNOWN in word or base not in registry():
        shown = word.replace(UNKNOWN, "…")
        t.say("R3", "program.unknown", f"{shown!r} is not a program that we know")
        return None
    if "/" not in word:
        path = t.fact(f"exe:{word}", f"{word} is the system's own {word}")
        if path is None or word in BUILTINS:
            return base
    else:
        path = word
    if not _trusted(str(path), t):
        t.say("R3", "program.untrusted-place", f"{path} is not where the system keeps {base}")
    return base


def _trusted(path: str, t: Trace) -> bool:
    place = normal(path) if path.startswith("/") else ""
    if not place or place != path.replace("//", "/"):
        return False
    if posixpath.dirname(place) in TRUSTED:
        return True
    if re.fullmatch(r"/usr/(lib|libexec|share)/.*", place) or places.SECRET.fullmatch(place):
        return False
    known_place = ENVIRONMENT.fullmatch(place) or any(
        under(place, root) for root in t.policy.roots if root not in SHARED
    )
    return bool(known_place and ENVIRONMENT_PROGRAMS.fullmatch(posixpath.basename(place)))


BUILTINS = frozenset({"eval", "exec", "source", ".", "command", "builtin", "type", "cd", "export", "ulimit", "umask", "set",
                      "unset", "alias", "trap", "wait", "read", "shift", "hash", "true", "false", ":", "test", "[",
                      "echo"})  # fmt: skip
"""A remote shell runs these itself, quoted or not."""


EMBEDDED = re.compile(r"[;`\n]|\$\(|&&|\|\|")


def embedded(words: Sequence[str], t: Trace) -> None:
    """Shell syntax inside operands that are names (of hosts, units, containers …)."""
    found = [word for word in words if EMBEDDED.search(word)]
    if found:
        t.say("R3", "shell.syntax", f"{found[0]!r} holds shell syntax")


def operators(words: Sequence[str], t: Trace) -> None:
    """Lone shell operators among operands: somebody thinks that a shell reads this."""
    found = [word for word in words if word in OPERATORS]
    if found:
        t.say("R3", "shell.operator", f"{found[0]!r} as an argument: it would not reach a shell")
