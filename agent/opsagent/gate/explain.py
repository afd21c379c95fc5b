"""One call of the command line as the gate sees it, for `opsagent policy explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opsagent import xdg
from opsagent.call import Call, Verdict
from opsagent.config import layers
from opsagent.gate.classify import split_pipe
from opsagent.gate.facts import FactSource, HostFacts, NoFacts
from opsagent.gate.gate import Gate
from opsagent.gate.policy_file import policy_from
from opsagent.gate.typed import CONTROL, READERS, RULES
from opsagent_tools.errors import HostError, InputError, suggest

TOOLS = ("ssh_exec", "run_job", *READERS, *RULES, *CONTROL, "ask_operator")


def explained(tool: str, host: str, words: list[str], *, hosts_file: Path | None = None, run: str = "") -> Verdict:
    """The verdict on a call. Raises InputError for an unknown tool, a missing command or an argument without `=`."""
    if tool not in TOOLS:
        raise InputError(f"no tool {tool!r}", hint=suggest(tool, TOOLS))
    if not host:
        raise InputError("the host is missing", hint="opsagent policy explain TOOL HOST -- ARGV…")
    call = Call(id="c0", tool=tool, role="", host=host, args=arguments(tool, words))
    source = _source(host, hosts_file)
    gate = Gate(policy_from(layers()), facts=lambda _call: source, run=run)
    try:
        return gate.judge(call)
    except HostError:  # nothing is asked then, and everything is assumed
        return Gate(gate.policy, run=run).judge(call)


def arguments(tool: str, words: list[str]) -> dict[str, Any]:
    """Arguments of the call: a command (with `|` between stages), or `key=value` where a value may be JSON."""
    if tool in ("ssh_exec", "run_job"):
        if not words:
            raise InputError("the command is missing", hint=f"opsagent policy explain {tool} HOST -- ARGV…")
        stages = split_pipe(words)
        return {"argv": stages[0]} if len(stages) == 1 else {"stages": stages}
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InputError(f"{word!r} is not key=value", hint=f"{tool} takes arguments like path=/srv/models/x")
        found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float) else value


def _source(host: str, hosts_file: Path | None) -> FactSource:
    """The host's own facts when hosts.toml names it, else none."""
    path = xdg.hosts_file(hosts_file or "")
    if hosts_file is None and not path.is_file():
        return NoFacts()
    from opsagent_tools.hosts import inventory

    found = inventory.load_inventory(path)
    return HostFacts(inventory.open_host(host, found)) if host in found.entries else NoFacts()
