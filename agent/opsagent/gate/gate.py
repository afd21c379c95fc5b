"""The gate as the loop uses it: judge a call, admit it, and look again right before the effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from opsagent.call import TIERS, Call, Decision, Verdict, canonical
from opsagent.gate import approvals, windows
from opsagent.gate.approvals import Grant, Mode
from opsagent.gate.classify import classify, missing
from opsagent.gate.facts import FactSource, NoFacts
from opsagent.gate.policy import Policy
from opsagent.gate.trace import Facts
from opsagent.protocols import Approver
from opsagent.redact import UNKNOWN, lost_secrets
from opsagent_tools.errors import PolicyDenied

ROUNDS = 4
"""How often new facts may ask for further facts (a container, then a path in it)."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Gate:
    """One run's gate. `approver` None: nobody can be asked."""

    policy: Policy
    mode: Mode = "declared"
    approver: Approver | None = None
    facts: Callable[[Call], FactSource] = lambda _call: NoFacts()
    """The source of facts for the host of a call."""
    run: str = ""
    owned: Callable[[str], frozenset[str]] = lambda _host: frozenset()
    """Real paths on a host that this run created."""
    pre_approved: frozenset[str] = frozenset()
    """Bindings named by the pre-approval file."""
    used: set[str] = field(default_factory=set)
    """Those of them that this run has used up."""
    written: set[str] = field(default_factory=set)
    """Hosts to which this run has written."""
    now: Callable[[], datetime] = _now
    preview: Callable[[Call], str] = lambda _call: ""
    """The change that a call would make, as a diff for the person who is asked."""
    tainted: bool = False
    """Output of an untrusted source was read: undeclared writes need a person, and grants beyond one call do not hold."""
    grants: list[Grant] = field(default_factory=list)
    safe: Callable[[Any], Any] = lambda value: value
    """Takes the secrets out of a JSON value, before anything is hashed that is written down or compared with such."""
    _cache: dict[str, dict[str, Any]] = field(default_factory=dict)

    # --- judging -------------------------------------------------------------------------------------------------

    def judge(self, call: Call) -> Verdict:
        """Classify a call, asking its host for the facts that matter. Raises HostError when the host cannot be reached."""
        return self._judge(call, self._cache.setdefault(call.host, {}))

    def _judge(self, call: Call, known: dict[str, Any]) -> Verdict:
        source = self.facts(call)
        for _ in range(ROUNDS):
            facts = self._facts(call, known, source.configured)
            wanted = [key for key in missing(call, facts, self.policy) if key not in known]
            if not source.configured or not wanted:
                break
            answers: Mapping[str, Any] = source.ask(wanted)
            if not answers:
                break
            known.update(answers)
        verdict = classify(call, self._facts(call, known, source.configured), self.policy)
        for key in [key for key, value in known.items() if not (key.startswith("exe:") and value)]:
            del known[key]  # only the table of programs is kept; everything else may change at any time
        return verdict

    def _facts(self, call: Call, known: Mapping[str, Any], configured: bool) -> Facts:
        return Facts(dict(known), self.run, self.owned(call.host), self.tainted, configured)

    def recheck(self, call: Call, verdict: Verdict) -> None:
        """Right before the effect: the facts that the approval rests on must still hold. Raises PolicyDenied."""
        if verdict.tier == "R0":
            return
        self.permits(call, verdict)
        again = self._judge(call, {})
        if again.binding(call) != verdict.binding(call):
            changed = sorted(k for k in {*again.facts, *verdict.facts} if again.facts.get(k) != verdict.facts.get(k))
            raise PolicyDenied(
                f"{call.tool}: the host changed after the approval ({', '.join(changed) or 'tier'}); nothing was executed",
                where=call.host, hint="look again and ask again",
            )  # fmt: skip
        if call.host:
            self.written.add(call.host)

    def taint(self) -> None:
        """Output of a tool reached a model that reads: from now on undeclared writes need a person, whatever was granted."""
        self.tainted = True

    # --- admitting -----------------------------------------------------------------------------------------------

    def admit(
        self,
        call: Call,
        verdict: Verdict,
        *,
        rollback: str = "",
        diff: str = "",
        asking: Callable[[], None] | None = None,
    ) -> Decision:
        """Let a call through, ask about it, or refuse it. `asking` is called before a person is asked.

        Returns a Decision; `wait` means that nobody could be asked (exit 4). Raises PolicyDenied for X, for mode
        `never`, and where the policy sets a limit (cap of a host, number of hosts, maintenance window).
        """
        ruling = self.permits(call, verdict)
        if ruling == "runs":
            return Decision("approve", "policy" if verdict.tier == "R0" else "runbook")
        binding = verdict.binding(call, self.safe)
        exact = not lost_secrets(self.safe(call.args), of=UNKNOWN)  # else other calls have the same hash
        if binding in self.pre_approved and binding not in self.used and verdict.tier in ("R1", "R2") and exact:
            self.used.add(binding)
            return Decision("approve", "approve-file")
        args = canonical(self.safe(call.args))
        if exact and not self.tainted and any(grant.covers(call, verdict, args) for grant in self.grants):
            return Decision("approve", "operator", "granted earlier in this run")
        if asking is not None:
            asking()
        if ruling == "waits" or self.approver is None:
            return Decision("wait", "nobody")
        decision = self.approver.decide(call, verdict, rollback=rollback, diff=diff or self.preview(call))
        self._grant(call, verdict, decision, args)
        return decision

    def expired(self, decision: Mapping[str, Any]) -> bool:
        return approvals.expired(decision, self.now())

    def permits(self, call: Call, verdict: Verdict) -> approvals.Ruling:
        """What no approval lifts, one from before a stop neither. Raises PolicyDenied, else says who decides."""
        self._outside_allow(call)
        self._limits(call, verdict)
        ruling = approvals.ruling(call, verdict, self.mode)
        if ruling == "denied":
            raise self._denied(call, verdict)
        return ruling

    def _grant(self, call: Call, verdict: Verdict, decision: Decision, args: str) -> None:
        if decision.answer == "approve" and decision.scope != "once" and verdict.tier in ("R1", "R2"):
            rules = approvals.rules_of(verdict)
            self.grants.append(Grant(decision.scope, call.host, call.tool, rules, verdict.tier, args, call.step))

    def _outside_allow(self, call: Call) -> None:
        """A model may do more than the runbook's calls, but inside `allow`: for another tool nobody is asked."""
        tools = self.policy.tools
        if tools is not None and call.host and not call.declared and call.tool not in tools:
            raise PolicyDenied(
                f"{call.tool} is not among the runbook's tools", where=call.host, hint=f"allowed: {', '.join(tools)}"
            )

    def _denied(self, call: Call, verdict: Verdict) -> PolicyDenied:
        why = "; ".join(f"{reason.rule}: {reason.text}" for reason in verdict.reasons[:3])
        if verdict.tier == "X":
            return PolicyDenied(
                f"{call.tool} is refused in every mode ({why})", where=call.host, hint="do it another way"
            )
        hint = "run with --approve ask at a terminal"
        return PolicyDenied(f"{call.tool} is {verdict.tier} and approvals are off ({why})", where=call.host, hint=hint)

    def _limits(self, call: Call, verdict: Verdict) -> None:
        """Limits that no approval lifts."""
        if verdict.tier == "R0" or not call.host:
            return
        cap = self.policy.tier_caps.get(call.host)
        if cap is not None and TIERS.index(verdict.tier) > TIERS.index(cap):
            raise PolicyDenied(f"{call.tool} is {verdict.tier}; {call.host} admits at most {cap}", where=call.host)
        most = self.policy.max_hosts_written
        if most is not None and call.host not in self.written and len(self.written) >= most:
            raise PolicyDenied(
                f"this run has written to {len(self.written)} hosts, the most that is allowed", where=call.host
            )
        if not call.rollback:
            shut = [w for w in self.policy.maintenance_windows if not windows.is_open(w, self.now())]
            if shut:
                raise PolicyDenied(
                    f"outside the maintenance window ({shut[0]})", where=call.host, hint="come back then"
                )
