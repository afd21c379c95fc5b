"""Processes of a host, with exact arguments, secrets masked, and who started them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pydantic import BaseModel

from opsagent_tools import probes
from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host, argv

MASK = "***"
SECRET_FLAGS = ("--api-key", "--admin-api-key", "--token", "--hf-token", "--password", "--ssl-keyfile-password")
SECRET_NAME = re.compile(r"(TOKEN|API_?KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.I)
COLUMNS = "pid=,ppid=,pgid=,sid=,user:32=,etimes=,stat=,args="


class Process(BaseModel):
    """One process. `argv` is exact where the host lets us read it, else `ps`'s words split at spaces."""

    pid: int
    parent: int
    group: int
    session: int
    user: str
    age_s: int
    state: str
    """First letter of `ps`'s STAT: R, S, D (stuck in the kernel), Z (dead, waiting for its parent) …"""
    argv: list[str]


def read_processes(host: Host) -> list[Process]:
    """All processes, as `ps` shows them, or /proc where there is no `ps`. Raises ToolFailed when neither answers.

    Never an empty list instead of an error: a stop must not take "I cannot look" for "nobody is left".
    """
    done = argv(host, "ps", "-ww", "-eo", COLUMNS, timeout_s=30, keep=4 << 20)
    if done.ok:
        return parse_ps(done.stdout)
    if done.exit_code in (126, 127):
        return [Process(**row) for row in probes.ask(host, "procs", {}, timeout_s=30)["processes"]]
    raise ToolFailed(f"ps: {done.stderr.strip()[:200]}", where=host.name)


def parse_ps(text: str) -> list[Process]:
    found = []
    for line in text.splitlines():
        words = line.split(None, 7)
        if len(words) == 8 and all(re.fullmatch(r"[0-9]+", word) for word in (*words[:4], words[5])):
            pid, parent, group, session = (int(word) for word in words[:4])
            found.append(Process(pid=pid, parent=parent, group=group, session=session, user=words[4], age_s=int(words[5]),
                                 state=words[6], argv=words[7].split()))  # fmt: skip
    return found


def exact_argv(host: Host, process: Process) -> list[str]:
    """Its words as it was started with them (/proc/PID/cmdline), else those of `ps`."""
    done = argv(host, "cat", f"/proc/{process.pid}/cmdline", timeout_s=20)
    words = done.stdout.rstrip("\0").split("\0") if done.ok and "\0" in done.stdout else []
    return words or process.argv


def tree(processes: Sequence[Process], root: int) -> list[int]:
    """`root` and all that descend from it."""
    found, more = {root}, {root}
    while more:
        more = {p.pid for p in processes if p.parent in found and p.pid not in found}
        found |= more
    return sorted(found)


def masked(words: Sequence[str]) -> list[str]:
    """The argv without secrets: `--api-key X`, `--api-key=X`, `TOKEN=x` and bearer headers."""
    shown: list[str] = []
    hide = False
    for word in words:
        name, equals, _value = word.partition("=")
        if hide:
            shown.append(MASK)
            hide = False
        elif name in SECRET_FLAGS and equals:
            shown.append(f"{name}={MASK}")
        elif word in SECRET_FLAGS:
            shown.append(word)
            hide = True
        elif equals and re.fullmatch(r"\w+", name) and SECRET_NAME.search(name):
            shown.append(f"{name}={MASK}")
        else:
            shown.append(re.sub(r"(?i)(bearer\s+)\S+", rf"\1{MASK}", re.sub(r"hf_[A-Za-z0-9]{16,}", MASK, word)))
    return shown


def tell_secrets(words: Sequence[str], env: dict[str, str], tell: Callable[[str], None]) -> None:
    """Say every secret value of an argv and an environment to the redactor, before it can appear anywhere."""
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in SECRET_FLAGS:
            secret = value if equals else (words[number + 1] if number + 1 < len(words) else "")
            if secret:
                tell(secret)
    for name, value in env.items():
        if value and SECRET_NAME.search(name):
            tell(value)


def unit_of(cgroup: str) -> tuple[str, int | None]:
    """Systemd unit and container of a /proc/PID/cgroup: (`sglang.service`, None), (``, 113) for LXC, (`docker-…`, None)."""
    container = re.search(r"/lxc(?:\.payload\.|/)(\d+)", cgroup)
    unit = re.search(r"/([^/\n]+\.(?:service|scope))\s*$", cgroup, re.M)
    return unit[1] if unit else "", int(container[1]) if container else None
