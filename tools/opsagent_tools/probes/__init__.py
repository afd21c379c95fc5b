"""Small scripts that we send to a target: stdlib only (apart from what they probe), Python 3.8 or newer.

Each is run as `python3 -c SCRIPT JSON_ARGUMENT` and prints one JSON object as the last line of its stdout; a long one may
print JSON lines of progress before it. A script's first line, `# opsagent probe: NAME`, is how the lab knows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Command, Completed, Host, Stream


@cache
def script(name: str) -> str:
    """The text of `probes/<name>.py`."""
    return (files("opsagent_tools.probes") / f"{name}.py").read_text(encoding="utf-8")


def command(
    name: str,
    argument: Mapping[str, Any],
    *,
    python: str = "python3",
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    timeout_s: float = 60.0,
) -> Command:
    """The command that runs a probe. Secrets go through `stdin`: arguments and `env` can be seen in `ps`."""
    text = json.dumps(argument, sort_keys=True, ensure_ascii=False)
    return Command.of(python, "-c", script(name), text, stdin=stdin, env=env, timeout_s=timeout_s)


def answer(done: Completed, name: str, host: str = "") -> dict[str, Any]:
    """The JSON object of the last line; ToolFailed when there is none (no python3, a traceback, cut off)."""
    for line in reversed(done.stdout.splitlines()):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            break
        if isinstance(value, dict):
            return value
        break
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    words = said[-1][:300] if said else "no output"
    hint = "python3 is needed on the host" if done.exit_code in (126, 127) else "run `opsagent doctor --host` on it"
    raise ToolFailed(f"probe {name} did not answer (exit {done.exit_code}): {words}", where=host, hint=hint)


def ask(
    host: Host,
    name: str,
    argument: Mapping[str, Any],
    *,
    python: str = "python3",
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    timeout_s: float = 60.0,
    sink: Callable[[Stream, bytes], None] | None = None,
    keep: int = 4 << 20,
) -> dict[str, Any]:
    """Run a probe on a host and return its answer. Raises ToolFailed without one, HostError when the link fails."""
    wanted = command(name, argument, python=python, stdin=stdin, env=env, timeout_s=timeout_s)
    return answer(host.run(wanted, sink=sink, keep=keep), name, host.name)
