"""A host that outlives its process: a file of effects, and one tool of each recovery class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.world import AddArgs, Count, CounterHost, ReadArgs, ScriptedGate

from opsagent.call import Call, Decision, Verdict
from opsagent.control import CONTROL
from opsagent_tools.tool import Context, Result, Tool

BODY = """
    ## Look {#look}

    ```call
    tool: read
    as: seen
    ```
    ```check
    - seen.value == 0
    ```

    ## Change {#change}

    ```call
    tool: put
    args: {by: 5}
    as: written
    ```
    ```call
    tool: add
    args: {by: "${goal}"}
    as: added
    ```
    ```check
    - written.value == 5
    - added.value == 7
    ```

    ## Risk {#risk}

    ```call
    tool: smash
    args: {by: 3}
    as: smashed
    ```
    ```check
    - smashed.value == 10
    ```
"""


@dataclass
class FileHost(CounterHost):
    """Effects are lines of a file: `c3 add 2`."""

    path: Path = Path("effects")
    hook: Callable[[str], None] = field(default=lambda _where: None)
    """Called before and after each effect: where a test dies."""

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def count(self) -> int:
        total = 0
        for line in self.lines():
            _call, tool, by = line.split()
            total = int(by) if tool == "put" else total + int(by)
        return total

    def effect(self, line: str) -> None:
        self.hook("before")
        with self.path.open("a") as file:
            file.write(line + "\n")
        self.hook("after")


def _read(host: FileHost, args: ReadArgs, ctx: Context) -> Count:
    return Count(value=host.count())


def _effect(tool: str) -> Callable[[FileHost, AddArgs, Context], Result]:
    def run(host: FileHost, args: AddArgs, ctx: Context) -> Result:
        host.effect(f"{ctx.call_id} {tool} {args.by}")
        return Count(value=host.count())

    return run


def _probe(host: FileHost, args: AddArgs, ctx: Context) -> Count | None:
    done = any(line.startswith(f"{ctx.call_id} add ") for line in host.lines())
    return Count(value=host.count()) if done else None


TOOLS: dict[str, Tool[Any, Any]] = {
    "read": Tool("read", "Read.", ReadArgs, Count, _read),
    "put": Tool("put", "Write.", AddArgs, Count, _effect("put"), tier="R1", recovery="idempotent"),
    "add": Tool("add", "Add.", AddArgs, Count, _effect("add"), tier="R1", recovery="reconcilable", probe=_probe),
    "smash": Tool("smash", "Risk.", AddArgs, Count, _effect("smash"), tier="R3", recovery="non_retriable"),
    **CONTROL,
}


class Gate(ScriptedGate):
    """Lets everything through; the risky call by an operator."""

    def judge(self, call: Call) -> Verdict:
        return Verdict(TOOLS[call.tool].tier, ())


def gate() -> Gate:
    return Gate(answers={"smash": Decision("approve", by="operator")})
