"""A run with the real gate over a pretended host: `ssh_exec` and nothing else, in a folder that can be opened again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes import FakeHost

from opsagent.approving import fingerprint, grants_of
from opsagent.call import Call, Decision, Verdict
from opsagent.control import CONTROL
from opsagent.gate import Gate, Mode, Policy
from opsagent.gate.facts import KnownFacts
from opsagent.journal import FileJournal
from opsagent.progress import Progress
from opsagent.protocols import ToolCall
from opsagent.redact import Redactor
from opsagent.run import Run
from opsagent.runbook.parse import parse
from opsagent_tools.registry import TOOLS

BOOK = """\
---
opsagent: 1
name: small
hosts: {target: {count: 1}}
---
# Small

## Look {#look}

```call
tool: ssh_exec
host: target
args: {argv: [uptime]}
```
```rollback
tool: ssh_exec
host: target
args: {argv: [rm, /srv/models/x]}
```

## Then {#then}

```call
tool: ssh_exec
host: target
args: {argv: [uptime]}
```
"""


@dataclass
class Person:
    """Answers what it was told to, in order, and counts the questions; the last answer stays."""

    answers: list[Decision] = field(default_factory=lambda: [Decision("approve", "operator")])
    asked: list[Call] = field(default_factory=list)
    rollbacks: list[str] = field(default_factory=list)

    def decide(self, call: Call, verdict: Verdict, *, rollback: str = "", diff: str = "") -> Decision:
        self.asked.append(call)
        self.rollbacks.append(rollback)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def open_folder(
    folder: Path, person: Person | None, *, policy: Policy | None = None, mode: Mode = "ask",
    secrets: Mapping[str, str] | None = None, host: FakeHost | None = None,
    known: Mapping[str, str] | None = None, **more: Any,
) -> Run:  # fmt: skip
    """A process of the run: it begins when the folder is empty, else it goes on, as `resume` does."""
    runbook, faults = parse(BOOK, "small.md")
    assert runbook is not None
    assert faults == []
    begun = (folder / "events.jsonl").exists()
    redactor = Redactor(secrets or {})
    journal = FileJournal.resume(folder, redactor) if begun else FileJournal.create(folder, redactor)
    rules = policy or Policy()
    safe: Callable[[Any], Any] = lambda value: journal.redactor.value(value)[0]  # noqa: E731
    gate = Gate(
        rules, mode, person, facts=lambda _call: KnownFacts({}), run="t1", safe=safe,
        grants=grants_of(journal.state, fingerprint(rules)),
    )  # fmt: skip
    machine = host or FakeHost()
    run = Run(
        id="t1", runbook=runbook, journal=journal, gate=gate, tools={"ssh_exec": TOOLS["ssh_exec"], **CONTROL},
        role_names={"target": "box"}, open_host=lambda _role: machine, policy=fingerprint(rules),
        known_secrets=known or secrets or {}, progress=Progress.of(journal.events()), **more,
    )  # fmt: skip
    if begun:
        run.emit("run.resumed", mode="resume")
    else:
        run.emit("run.started", run="t1", runbook={"name": "small"}, params={}, policy=fingerprint(rules))
        run.emit("step.entered", step="look", title="Look")
    return run


def wants(*argv: str, **more: Any) -> ToolCall:
    return ToolCall("x", "ssh_exec", {"argv": list(argv), **more})
