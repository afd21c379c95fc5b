"""The classification: a pure function of call, facts and policy. Any doubt goes up; an exception is R3."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from opsagent.call import TIERS, Call, Verdict
from opsagent.gate import argv as programs
from opsagent.gate import typed
from opsagent.gate.policy import Policy
from opsagent.gate.trace import Facts, Trace, strictest

__all__ = ["Facts", "classify", "missing"]

Argv = tuple[str, ...]


def classify(call: Call, facts: Facts, policy: Policy) -> Verdict:
    """What the call could do, at worst. Never raises: what cannot be judged is R3."""
    return _verdict(call, _trace(call, facts, policy))


def missing(call: Call, facts: Facts, policy: Policy) -> dict[str, str]:
    """Keys of the facts that a classification would have to assume now → what it would assume."""
    return _trace(call, facts, policy).missing


def _trace(call: Call, facts: Facts, policy: Policy) -> Trace:
    t = Trace(facts, policy, undoes=call.rollback and call.declared)
    try:
        if call.tool in ("ssh_exec", "run_job"):
            command(call, t)
        else:
            typed.check(call, t)
        _policy_rules(call, t)
        _declared(call, t)
    except Exception as error:  # whatever it is: fail closed
        t.say("R3", "gate.cannot-judge", f"could not be judged ({type(error).__name__}: {error})")
    if not t.findings:
        t.say("R3", "gate.no-rule", "no rule speaks for this call")
    return t


def _verdict(call: Call, t: Trace) -> Verdict:
    assumed = tuple(dict.fromkeys(t.missing.values()))
    return Verdict(t.tier, t.reasons(), assumed, tuple(t.effects), dict(sorted(t.used.items())))


def stages_of(args: dict[str, Any]) -> list[Argv]:
    """The pipe that ssh_exec or run_job would run: `argv` as words, or as a list of such lists. Raises ValueError."""
    raw = args.get("argv") or args.get("stages")
    if not isinstance(raw, list) or not raw:
        raise ValueError("argv is missing")
    if all(isinstance(word, str) for word in raw):
        return [tuple(raw)]
    if all(isinstance(stage, list) and stage and all(isinstance(word, str) for word in stage) for stage in raw):
        return [tuple(stage) for stage in raw]
    raise ValueError("argv is neither words nor a pipe of words")


def command(call: Call, t: Trace) -> None:
    """ssh_exec and run_job: every stage of the pipe, knowing the stages before it."""
    if call.tool == "run_job" and call.args.get("job") and not call.args.get("argv"):
        t.say("R0", "job.wait", "goes on waiting for a job that runs already")
        return
    stages = stages_of(call.args)
    stdin = call.args.get("stdin")
    t.stdin = stdin if isinstance(stdin, str) else None
    env = call.args.get("env")
    if isinstance(env, dict):
        from opsagent.gate.guards import variables

        for name, value in env.items():
            variables.assign(t, str(name), str(value))
    if call.host and "/" in call.host:
        t.effect(f"runs in the container {call.host}")
    for index, stage in enumerate(stages):
        t.upstream, t.downstream = tuple(stages[:index]), tuple(stages[index + 1 :])
        programs.check(stage, t)
    if call.tool == "run_job":
        t.say("R1", "job.start", "starts a supervised job on the host")
        typed.job_paths(call.args, t)


def _policy_rules(call: Call, t: Trace) -> None:
    with_argv = call.tool in ("ssh_exec", "run_job") and (call.args.get("argv") or call.args.get("stages"))
    stages: Sequence[Argv] = stages_of(call.args) if with_argv else [()]
    for rule in t.policy.rules:
        if any(rule.applies(call.tool, stage) for stage in stages):
            t.say(rule.tier, rule.id, rule.why)


def _declared(call: Call, t: Trace) -> None:
    """What the runbook's front matter leaves out, and what an untrusted text may have suggested."""
    tier = t.tier
    if tier == "R0":
        return
    unasked = [key for key in t.missing if key.startswith(("path:", "pid:"))]
    if tier == "R1" and t.facts.configured and unasked:
        t.say("R2", "facts.unknown", f"the host did not say what {unasked[0].partition(':')[2]} is")
    if t.policy.tools is not None and call.tool not in t.policy.tools:
        t.say(strictest([tier, "R2"]), "allow.tool", f"{call.tool} is not among the runbook's tools")
    if t.policy.hosts is not None and call.host and call.host not in t.policy.hosts:
        t.say(strictest([tier, "R2"]), "allow.host", f"{call.host} is not among the hosts that may be written to")
    if t.facts.tainted and not call.declared and TIERS.index(tier) < TIERS.index("R2"):
        t.say("R2", "taint.undeclared-write", "an untrusted text was read, and the runbook does not declare this write")


def split_pipe(words: Sequence[str]) -> list[list[str]]:
    """ARGV of the command line as a pipe: a word `|` separates stages, unless it is plainly a value.

    It is a value when the word before is an option of a delimiter (`-d`, `-F`, `-t`, `-s`, or a long one) or a pattern
    program's first word, and the word after is no program that we know.
    """
    stages: list[list[str]] = [[]]
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        after = words[index + 1] if index + 1 < len(words) else ""
        value = re.fullmatch(r"-[dFtsev]|--[a-z-]*(delimiter|separator|field)[a-z-]*|[efz]?grep|tr", before) is not None
        if word == "|" and stages[-1] and not (value and (not after or not programs.known(after))):
            stages.append([])
        else:
            stages[-1].append(word)
    return stages
