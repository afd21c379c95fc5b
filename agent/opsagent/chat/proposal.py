"""A run that is proposed and not yet begun: what would be done, where, with which predicted limits, and how it looks.

The prediction is ours: whatever the model says of limits, the person reads what the planner says of these hosts now.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from opsagent.gate.display import visible
from opsagent.places import Places
from opsagent.runbook import expr
from opsagent.runbook.model import CallSpec, Runbook
from opsagent.runbook.params import bind
from opsagent_tools.errors import InputError, suggest
from opsagent_tools.sglang.plan import Limits
from opsagent_tools.sglang.words import change_text, tokens
from opsagent_tools.tool import Args, Result, Tool

WIDTH = 12
"""Columns of a proposal's labels."""
HANG = 2 + WIDTH
"""Where what is too long for one line goes on."""


class ProposeRunArgs(Args):
    runbook: str = Field(min_length=1, description="Name of one of the runbooks.")
    hosts: dict[str, str] = Field(default={}, description="Role of the runbook → host. Left out: the usual one.")
    params: dict[str, Any] = Field(
        default={}, description="Parameters of the runbook that differ from its defaults; flags as one string."
    )
    why: str = Field(min_length=1, max_length=800, description="One or two sentences for the person: what it is for.")


class ProposeRunResult(Result):
    answer: str
    """`yes`, `no` or `change`."""


def _by_chat(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("a proposal is carried out by the chat, not on a host")


PROPOSE = Tool(
    name="propose_run",
    description="Propose a run of a runbook to the person. They see steps, hosts, parameters and the planner's prediction, "
    "and answer yes, no or what to change, with a reason. With yes it is made at once, and the result is its report.",
    args=ProposeRunArgs,
    result=ProposeRunResult,
    run=_by_chat,
)


@dataclass(frozen=True)
class Proposal:
    """One run, ready to be asked about."""

    runbook: Runbook
    places: Places
    given: dict[str, Any]
    """Parameters that were chosen."""
    params: dict[str, Any]
    """All of them."""
    why: str
    prediction: Mapping[str, Any] | None = None
    """Result of estimate_vram with these parameters on the hosts as they are now."""
    evidence: str = ""
    """The event that has it."""
    unpredicted: str = ""
    """Why there is no prediction."""


def drafted(runbook: Runbook, places: Places, given: Mapping[str, Any], why: str) -> Proposal:
    """A proposal without its prediction. Raises InputError for a parameter that is unknown, missing or of another type."""
    chosen = {name: _plain(value) for name, value in given.items()}
    return Proposal(runbook, places, chosen, bind(runbook, chosen, places.params), why)


def _plain(value: Any) -> Any:
    """A model may write a map or a list as JSON text, or a number as text: the runbook's types decide."""
    return value if isinstance(value, (str, list, dict)) or value is None else json.dumps(value)


def planning_call(proposal: Proposal) -> tuple[str, dict[str, Any]] | None:
    """(role, arguments) of the runbook's own estimate_vram with what is known before the run; None if it plans nothing.

    What an earlier call of the run would bring (the result of read_config) is replaced by the path that it would read.
    """
    calls = [fence.spec for step in proposal.runbook.steps for fence in step.calls]
    spec = next((call for call in calls if call.tool == "estimate_vram"), None)
    if spec is None:
        return None
    paths = {call.bind: call.args.get("path") for call in calls if call.tool == "read_config"}
    known = {**proposal.params, "hosts": proposal.places.roles}
    arguments: dict[str, Any] = {}
    for name, value in spec.args.items():
        roots = {root for text in expr.references(value) for root in expr.roots(text)}
        if name == "model" and roots & set(paths):
            value = paths[next(iter(roots & set(paths)))]
            roots = {root for text in expr.references(value) for root in expr.roots(text)}
        if roots <= set(known):
            arguments[name] = expr.resolve(value, known)
    role = spec.host or next(iter(proposal.places.roles), "")
    return (role, arguments) if arguments.get("model") else None


# --- how it is shown -----------------------------------------------------------------------------------------------


def shown(proposal: Proposal, *, approve: str, tier: Callable[[str], str]) -> list[str]:
    """The lines that a person decides on. `tier` says the least tier of a tool."""
    book = proposal.runbook
    lines = _row("what", f"{book.title} ({book.path})")
    lines += _row("why", proposal.why)
    for number, (role, name) in enumerate(proposal.places.roles.items()):
        label = proposal.places.inventory.label(name)
        shown_name = (name or "nobody") + (f"  ({label})" if label else "")
        lines += _row("hosts" if number == 0 else "", f"{role} = {shown_name}")
    lines += _row("steps", " → ".join(step.id for step in book.steps))
    lines += _params(proposal)
    lines += _prediction(proposal)
    lines += _row("changes", _changes(book, tier))
    undo = [f"{step.id}: {fence.spec.tool}" for step in book.steps for fence in step.rollbacks]
    lines += _row("undo", "; ".join(dict.fromkeys(undo)) or "the runbook declares nothing that takes it back")
    lines += _row("approvals", approve)
    return lines


def _row(label: str, text: str) -> list[str]:
    """A label and a text that hangs under it; the view wraps what is too long."""
    return [f"  {label:{WIDTH}}{visible(text)}"]


def _params(proposal: Proposal) -> list[str]:
    """What differs from the runbook in full; the rest on the lines below."""
    params = proposal.runbook.front.params
    changed = [name for name in proposal.params if name in proposal.given or name in proposal.places.params]
    lines: list[str] = []
    for name in changed:
        usual = "" if params[name].default in (None, "") else f"   (usually {_value(params[name].default)})"
        value = "•••" if params[name].secret else _value(proposal.params[name])
        same = _value(params[name].default) == value
        lines += _row("" if lines else "parameters", f"{name} = {value}{'' if same else usual}")
    rest = [
        f"{name} = {_value(value)}" for name, value in proposal.params.items()
        if name not in changed and not params[name].secret and value not in ("", [], {}, None)
    ]  # fmt: skip
    return lines + _row("usual" if lines else "parameters", "; ".join(rest)) if rest else lines


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _prediction(proposal: Proposal) -> list[str]:
    found = proposal.prediction
    if found is None:
        return _row("predicted", proposal.unpredicted) if proposal.unpredicted else []
    lines = _row("predicted", f"as asked: {outcome(found)}  [{proposal.evidence}]")
    offer = found.get("proposal")
    if offer and offer.get("change"):
        change, limits = change_text(offer["change"]), limits_text(Limits.model_validate(offer["limits"]))
        lines += _row("", f"so it proposes {change}: {limits}")
    if offer and offer.get("binding_constraint"):
        lines += _row("", f"bound by {offer['binding_constraint']}")
    if offer is None:
        lines += _row("", "no flags that we know meet the wish on these cards: the run would stop at its plan")
    return lines


def outcome(plan: Mapping[str, Any]) -> str:
    """What becomes of the flags as asked: the limits, or why it fails."""
    if plan.get("limits") is None:
        return f"would fail: {plan.get('cause') or plan.get('failure')}"
    return limits_text(Limits.model_validate(plan["limits"]))


def limits_text(limits: Limits) -> str:
    count = limits.max_running_requests
    return (
        f"{count:,} request{'' if count == 1 else 's'} at once, {tokens(limits.max_total_num_tokens)} tokens in all, "
        f"context {limits.context_len:,}"
    )


def _changes(book: Runbook, tier: Callable[[str], str]) -> str:
    found: list[str] = []
    for step in book.steps:
        writing = dict.fromkeys(fence.spec.tool for fence in step.calls if _may_write(fence.spec, tier))
        found += [f"{step.id}: {', '.join(writing)}"] if writing else []
    if not found:
        return "nothing: every declared call reads"
    allow = book.front.allow
    bounds = [f"under {', '.join(allow.roots)}"] if allow.roots else []
    bounds += [f"ports {', '.join(allow.ports)}"] if allow.ports else []
    return "; ".join(found) + (f" ({'; '.join(bounds)})" if bounds else "")


def _may_write(spec: CallSpec, tier: Callable[[str], str]) -> bool:
    return tier(spec.tool) != "R0" or spec.tool in ("ssh_exec", "run_job")


def assignments(text: str, proposal: Proposal) -> tuple[dict[str, str], dict[str, str]] | None:
    """`want_context=65536 target=gpu4` as (parameters, roles); None when the text is words and not such a list."""
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError:
        return None
    known, roles = proposal.runbook.front.params, proposal.runbook.front.hosts
    if not pairs or any(not equals or (name not in known and name not in roles) for name, equals, _ in pairs):
        return None
    return {n: v for n, _, v in pairs if n in known}, {n: v for n, _, v in pairs if n in roles and n not in known}


def unknown_runbook(name: str, known: Mapping[str, Any]) -> InputError:
    return InputError(f"no runbook {name!r}", hint=suggest(name, list(known)))
