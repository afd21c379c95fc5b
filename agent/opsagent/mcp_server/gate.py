"""The gate of a session: the run's own gate, which does not know the tools that only a session has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opsagent.call import Call, Decision, Verdict
from opsagent.data import find_runbook
from opsagent.gate import Gate
from opsagent.gate.guards import paths
from opsagent.gate.trace import Facts, Trace
from opsagent.mcp_server.own import READING, absolute
from opsagent.runbook.parse import parse
from opsagent_tools.errors import PolicyDenied


@dataclass(frozen=True)
class SessionGate:
    """Judges a session's own tools here and every other in the gate."""

    gate: Gate

    def judge(self, call: Call) -> Verdict:
        if call.tool in READING or call.tool == "run_runbook":
            return self._own(call)
        return self.gate.judge(call)

    def _own(self, call: Call) -> Verdict:
        t = Trace(Facts(), self.gate.policy)
        if call.tool == "run_runbook":
            _runbook(call, t)
        else:
            t.say("R0", f"{call.tool}.read", f"{call.tool} reads on this machine")
        for key in ("path", "model", "runbook"):
            value = call.args.get(key)
            if isinstance(value, str) and value:
                paths.read(t, absolute(value))
        return Verdict(t.tier, t.reasons(), tuple(t.missing.values()), tuple(t.effects), dict(t.used))

    def admit(
        self, call: Call, verdict: Verdict, *, rollback: str = "", diff: str = "",
        asking: Callable[[], None] | None = None,
    ) -> Decision:  # fmt: skip
        return self.gate.admit(call, verdict, rollback=rollback, diff=diff, asking=asking)

    def recheck(self, call: Call, verdict: Verdict) -> None:
        if not call.host:
            self.gate.permits(call, verdict)
            if self.judge(call).binding(call) != verdict.binding(call):
                raise PolicyDenied(f"{call.tool}: it is judged differently now; nothing was executed")
            return
        self.gate.recheck(call, verdict)

    def expired(self, decision: Mapping[str, Any]) -> bool:
        return self.gate.expired(decision)

    def taint(self) -> None:
        self.gate.taint()


def _runbook(call: Call, t: Trace) -> None:
    """A run of a runbook. An approval is bound to its text, which an assistant may have written itself."""
    if call.args.get("dry_run"):
        t.say("R0", "runbook.dry", "reads only: nothing of the runbook that changes anything is made")
        return
    t.say("R2", "runbook.run", "starts a run that makes what the runbook declares, without asking again")
    path = find_runbook(str(call.args.get("runbook")))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return  # the call itself says what is wrong with it
    t.used["runbook"] = hashlib.sha256(text.encode()).hexdigest()
    book, _faults = parse(text, str(path))
    if book is not None:
        steps = ", ".join(step.id for step in book.steps)
        tools = dict.fromkeys(fence.spec.tool for step in book.steps for fence in step.calls)
        t.effect(f"follows {path}: steps {steps}; tools {', '.join(tools)}")
