"""Asking a person at the terminal: what exactly would happen, where, why it is asked, and how it could be undone.

Text of others is written out, never obeyed (display.py). The default is No. R3 needs the host's name typed. Answers: yes
(once, for this step, for this rule in this run), change, no with a reason that the model sees, stop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from opsagent.call import Call, Decision, Scope, Verdict
from opsagent.gate.classify import stages_of
from opsagent.gate.display import has_hidden, visible, word

MEANING = {
    "R1": "a bounded write that can be taken back",
    "R2": "disruptive: it touches a running service or something shared",
    "R3": "destructive, or not to be understood",
}
ANSWERS = "[y]es once · [s]ame call in this step · [r]ule for this run · [c]hange · [n]o · sto[p]"
ANSWERS_R3 = "type the host's name to allow it · [c]hange · [n]o · sto[p]"
LIMIT = 4000
"""Characters of one value that are shown; the rest is counted."""


def _clip(text: str) -> str:
    return text if len(text) <= LIMIT else f"{text[:LIMIT]}… ({len(text) - LIMIT} more characters)"


def _argument_lines(call: Call) -> list[str]:
    """The command one word a line, or the arguments one a line."""
    args = call.args
    lines: list[str] = []
    if call.tool in ("ssh_exec", "run_job") and (args.get("argv") or args.get("stages")):
        for index, stage in enumerate(stages_of(args)):
            lines += ["  | into:"] if index else []
            lines += [f"    {_clip(word(each))}" for each in stage]
        args = {k: v for k, v in args.items() if k in ("stdin", "env", "cwd", "log") and v not in (None, {}, "")}
    for key, value in args.items():
        if value is None:  # not given: nothing to read
            continue
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
        several = shown.splitlines() if key in ("content", "stdin") else [shown]
        lines += [f"  {visible(key)}: {_clip(visible(several[0] if several else ''))}"]
        lines += [f"    {_clip(visible(line))}" for line in several[1:40]]
        lines += [f"    … {len(several) - 40} more lines"] if len(several) > 40 else []
    return lines


def render(call: Call, verdict: Verdict, *, label: str = "", rollback: str = "", diff: str = "") -> str:
    """What the person reads before deciding."""
    place = f"{visible(call.host) or 'the run itself'}" + (f"  ({visible(label)})" if label else "")
    lines = ["", f"── {verdict.tier} · {visible(call.tool)} on {place} " + "─" * 20]
    lines.append(f"  {MEANING.get(verdict.tier, '')}")
    lines += [f"  because {visible(reason.rule)}: {visible(reason.text)}" for reason in verdict.reasons]
    lines += _argument_lines(call)
    lines += [f"  effect: {visible(each)}" for each in verdict.effects]
    lines += [f"  assumed, not looked up: {visible(each)}" for each in verdict.assumed[:8]]
    if diff:
        lines += ["  diff:", *[f"    {visible(line)}" for line in diff.splitlines()[:200]]]
    lines.append(f"  undo: {visible(rollback) if rollback else 'nothing is declared that takes it back'}")
    everything = json.dumps(call.args, ensure_ascii=False) + diff
    if has_hidden(everything) or any(has_hidden(str(v)) for v in _strings(call.args)):
        lines.append("  WARNING: there were invisible or reordering characters; they are written out above")
    if call.step:
        lines.append(
            f"  step {visible(call.step)}, call {visible(call.id)}{', declared by the runbook' if call.declared else ''}"
        )
    return "\n".join(lines)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in _strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in _strings(each)]
    return []


def _say(text: str) -> None:
    click.echo(text, err=True)


def _read(question: str) -> str:
    return str(click.prompt(question, default="", show_default=False, err=True))


@dataclass(frozen=True)
class TerminalApprover:
    """Asks on the terminal (stderr), one call at a time. An end of input is No."""

    labels: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = _say
    read: Callable[[str], str] = _read

    def decide(self, call: Call, verdict: Verdict, *, rollback: str = "", diff: str = "") -> Decision:
        self.say(render(call, verdict, label=self.labels.get(call.host, ""), rollback=rollback, diff=diff))
        try:
            return self._ask(call, verdict)
        except (EOFError, click.Abort):
            return Decision("reject", "operator", "no answer")

    def _ask(self, call: Call, verdict: Verdict) -> Decision:
        severe = verdict.tier == "R3"
        answer = self.read(ANSWERS_R3 if severe else ANSWERS).strip()
        if severe and answer == call.host and call.host:
            return Decision("approve", "operator")
        choice = answer.lower()
        if not severe and choice in ("y", "yes", "s", "r"):
            scope: Scope = "step" if choice == "s" else "rule" if choice == "r" else "once"
            return Decision("approve", "operator", scope=scope)
        if choice in ("c", "change"):
            return self._change(call)
        if choice in ("p", "stop"):
            return Decision("stop", "operator", self.read("why (the report says it)").strip())
        if severe and choice in ("y", "yes"):
            self.say("  not done: this one needs the host's name")
        return Decision("reject", "operator", self.read("why not (the model reads it)").strip())

    def _change(self, call: Call) -> Decision:
        """New arguments as JSON; they are validated, judged and asked about like any other call."""
        text = self.read("new arguments as one JSON object")
        try:
            value = json.loads(text)
        except ValueError as error:
            return Decision("reject", "operator", f"the changed arguments are not JSON ({error})")
        if not isinstance(value, dict):
            return Decision("reject", "operator", "the changed arguments are not a JSON object")
        return Decision("change", "operator", args=value)
