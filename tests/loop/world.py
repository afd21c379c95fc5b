"""A small world for tests of the loop: one counter on one host, tools that change it, a gate that says what it is told."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent.call import Call, Decision, Verdict
from opsagent.control import CONTROL
from opsagent.journal import MemoryJournal
from opsagent.run import Run
from opsagent.runbook.parse import parse
from opsagent_tools.errors import OutcomeUnknown, PolicyDenied, ToolFailed
from opsagent_tools.host import Command, Completed, Host, Sink
from opsagent_tools.tool import Args, Context, Result, Tool


@dataclass
class CounterHost:
    """A host with one number and a list of faults to raise."""

    name: str = "box"
    value: int = 0
    effects: list[str] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        raise AssertionError("these tools use the host directly")

    def close(self) -> None:
        return


class ReadArgs(Args):
    least: int = 0


class AddArgs(Args):
    by: int = 1
    flags: list[str] = []


class Count(Result):
    value: int
    low: bool = False

    @property
    def failed(self) -> bool:
        return self.low


def _read(host: CounterHost, args: ReadArgs, ctx: Context) -> Count:
    _fault(host)
    low = host.value < args.least
    return Count(value=host.value, low=low, cause="too-low" if low else None, summary=f"value {host.value}")


def _add(host: CounterHost, args: AddArgs, ctx: Context) -> Count:
    _fault(host)
    host.value += args.by
    host.effects.append(f"{ctx.call_id}+{args.by}")
    return Count(value=host.value)


def _fault(host: CounterHost) -> None:
    if host.faults:
        raise host.faults.pop(0)


def _probe_add(host: CounterHost, args: AddArgs, ctx: Context) -> Count | None:
    done = any(effect.startswith(f"{ctx.call_id}+") for effect in host.effects)
    return Count(value=host.value) if done else None


TOOLS: dict[str, Tool[Any, Any]] = {
    "read": Tool("read", "Read the counter.", ReadArgs, Count, _read),
    "add": Tool(
        "add", "Add to the counter.", AddArgs, Count, _add, tier="R1", recovery="reconcilable", probe=_probe_add
    ),
    "smash": Tool("smash", "Cannot be undone.", AddArgs, Count, _add, tier="R3", recovery="non_retriable"),
    **CONTROL,
}


@dataclass
class ScriptedGate:
    """Approves everything, except the tools that it was given an answer for."""

    answers: dict[str, Decision] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)

    def judge(self, call: Call) -> Verdict:
        return Verdict(TOOLS[call.tool].tier, ())

    def admit(
        self,
        call: Call,
        verdict: Verdict,
        *,
        rollback: str = "",
        diff: str = "",
        asking: Callable[[], None] | None = None,
    ) -> Decision:
        if call.tool in self.denied:
            raise PolicyDenied(f"{call.tool} is forbidden")
        if call.tool in self.answers:
            if asking is not None:
                asking()
            return self.answers[call.tool]
        return Decision("approve", by="policy")

    def expired(self, decision: Mapping[str, Any]) -> bool:
        return False

    def recheck(self, call: Call, verdict: Verdict) -> None:
        if call.tool in self.stale:
            raise PolicyDenied("the facts changed")

    def taint(self) -> None:
        return


TWO_STEPS = """
    ## Raise {#raise}

    ```call
    tool: add
    args: {by: "${goal}"}
    as: added
    ```
    ```check
    - added.value == goal
    ```

    ## Look {#look}

    ```call
    tool: read
    args: {least: "${goal}"}
    as: seen
    ```
    ```check
    - seen.value >= goal
    ```
"""


HEAD = """\
---
opsagent: 1
name: count
params:
  goal: {type: int, default: 2}
  wish: {type: flags, default: ""}
hosts: {box: {count: 1}}
---
# Count
"""


def make_run(body: str, *, host: CounterHost | None = None, gate: ScriptedGate | None = None, **more: Any) -> Run:
    runbook, faults = parse(HEAD + textwrap.dedent(body), "count.md")
    assert runbook is not None
    assert faults == []
    counter: Host = host or CounterHost()
    journal = MemoryJournal()
    run = Run(
        id="t1", runbook=runbook, journal=journal, gate=gate or ScriptedGate(), tools=TOOLS,
        role_names={"box": "box"}, open_host=lambda _role: counter, **more,
    )  # fmt: skip
    run.emit("run.started", run="t1", runbook={"name": "count"}, params={"goal": 2, "wish": []}, model="autopilot")
    return run


__all__ = ["CounterHost", "OutcomeUnknown", "ScriptedGate", "ToolFailed", "make_run"]
