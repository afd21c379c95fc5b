"""A command as one line of POSIX shell, the only form that SSH knows.

    LC_ALL=C PAGER=cat … timeout -k 2 60 ss -ltnp | LC_ALL=C PAGER=cat … timeout -k 2 60 grep 30000; exit $?

`timeout` on the far side ends what we no longer wait for; `; exit $?` makes a death by signal 128 + n instead of a lost
link. Every word is quoted; nothing of it is expanded. Login shells that are not POSIX (fish, csh) are not supported.
"""

from __future__ import annotations

import math
import shlex

from opsagent_tools.errors import InputError
from opsagent_tools.host import Argv, Command

PLAIN_ENV = {"LC_ALL": "C", "PAGER": "cat", "DEBIAN_FRONTEND": "noninteractive"}
KILL_AFTER_S = 2


def limited(argv: Argv, timeout_s: float) -> Argv:
    """The argv under the far side's own time limit (exit 124, or 137 when it had to be killed)."""
    return ("timeout", "-k", str(KILL_AFTER_S), str(max(1, math.ceil(timeout_s))), *argv)


def line(command: Command) -> str:
    """The whole pipe as one line. Raises InputError for what no shell can carry (NUL bytes, no words, bad names)."""
    check(command)
    env = {**PLAIN_ENV, **command.env}
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in env.items())
    stages = [before + shlex.join(limited(argv, command.timeout_s)) for argv in command.stages]
    return " | ".join(stages) + "; exit $?"


def check(command: Command) -> None:
    if not command.stages or any(not argv or not argv[0] for argv in command.stages):
        raise InputError("a command needs at least one word in every stage")
    words = [word for argv in command.stages for word in argv] + list(command.env.values())
    if any("\0" in word for word in words):
        raise InputError("a command cannot hold a NUL byte", hint="pass binary data through stdin or a file")
    for name in command.env:
        if not name.isidentifier() or not name.isascii():
            raise InputError(f"bad environment variable {name!r}")


def timed_out(exit_code: int, duration_s: float, timeout_s: float) -> bool:
    """Whether this end was our time limit: `timeout` says 124, or 137 when it had to kill; an early 137 is not ours."""
    return exit_code == 124 or (exit_code == 137 and duration_s >= 0.95 * max(1, math.ceil(timeout_s)))
