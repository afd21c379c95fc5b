"""Why the limits are what they are, what a user will notice, and what else could be had."""

from __future__ import annotations

import itertools
from typing import Any

from opsagent.journal.state import CallState
from opsagent.report.evidence import Evidence
from opsagent.report.markdown import limits_text, number
from opsagent.report.model import Claim, TradeOff

SLOW_S = 2.0
"""A first answer that took less, in seconds, is nothing that anybody notices."""


def _plans(seen: Evidence) -> list[tuple[dict[str, Any], str]]:
    calls = seen.calls.get("estimate_vram", [])
    return [(call.result or {}, call.events.get("call.finished", "")) for call in calls]


def why(seen: Evidence) -> list[Claim]:
    """What bound the flags as asked, and what the chosen ones make of it."""
    found: list[Claim] = []
    for plan, event in _plans(seen):
        limits, proposal = plan.get("limits") or {}, plan.get("proposal") or {}
        if plan.get("verdict") == "fits" and plan.get("binding_constraint"):
            found.append(
                Claim(
                    text=f"The flags as asked give {limits_text(limits)}: bound by {plan['binding_constraint']}.",
                    evidence=[event],
                )
            )
        elif plan.get("verdict") == "fails":
            reason = plan.get("cause") or plan.get("failure") or "it does not fit"
            found.append(Claim(text=f"The flags as asked do not start: {reason}.", evidence=[event]))
        if proposal.get("limits") and proposal.get("limits") != limits:
            added = added_flags((plan.get("asked") or {}).get("flags") or [], proposal.get("flags") or [])
            change = f" With {added}" if added else " The proposal"
            found.append(Claim(text=f"{change.strip()}: {limits_text(proposal['limits'])}.", evidence=[event]))
    return list({claim.text: claim for claim in found}.values())


def added_flags(asked: list[str], proposed: list[str]) -> str:
    """The options of a proposal that the asked flags do not have, as text."""
    have = {word for word in asked if word.startswith("--")}
    added: list[str] = []
    for index, word in enumerate(proposed):
        if word.startswith("--") and word not in have:
            value = (
                proposed[index + 1] if index + 1 < len(proposed) and not proposed[index + 1].startswith("--") else ""
            )
            added.append(f"{word} {value}".strip())
    return " ".join(added)


def behaviours(seen: Evidence) -> list[Claim]:
    """What a user will notice: from the probes of the running server, and from the model's own claims."""
    found: list[Claim] = []
    call = seen.last("curl_test")
    event = call.events.get("call.finished", "") if call is not None else ""
    result = (call.result or {}) if call is not None else {}
    facts = result.get("facts") or {}
    if facts.get("thinks_by_default"):
        found.append(
            Claim(
                text="It thinks by default; the thinking is in reasoning_content. Off per request: "
                'chat_template_kwargs {"enable_thinking": false}.',
                evidence=[event],
            )
        )
    if float(facts.get("first_answer_s") or 0) >= SLOW_S:
        found.append(
            Claim(
                text=f"The first answer after a start is slow ({number(round(float(facts['first_answer_s']), 1))} s here: "
                "kernels compile); later ones are not.",
                evidence=[event],
            )
        )
    if facts.get("accept_length"):
        found.append(Claim(text=f"Speculation accepts {facts['accept_length']} tokens a step.", evidence=[event]))
    found += [Claim(text=str(text), evidence=[event]) for text in result.get("behaviours") or []]
    for noted in seen.events:
        if noted.type == "note" and isinstance(noted.data.get("finish"), dict):
            found += [Claim.model_validate(item) for item in noted.data["finish"].get("behaviours") or []]
    return found


def trade_offs(seen: Evidence, launch: CallState | None) -> list[TradeOff]:
    """The planner's other options against what was launched, in its order (cheapest first)."""
    plans = _plans(seen)
    if not plans:
        return []
    plan, event = plans[-1]
    running = plan if launch is None else (plan.get("proposal") or plan)
    chosen = running.get("limits") or {}
    flags = [str(word) for word in running.get("flags") or (plan.get("asked") or {}).get("flags") or []]
    base = (running.get("per_gpu_gib") or {}).get("pool_end_avail")
    options: list[TradeOff] = []
    for option in plan.get("alternatives") or plan.get("advice") or []:
        limits = option.get("limits") or {}
        if limits and not _same(limits, chosen):
            options.append(
                TradeOff(
                    to_get=str(option.get("to_get") or _to_get(limits, chosen)),
                    change=_beyond(option.get("change") or {}, flags),
                    limits={k: limits.get(k) for k in ("max_running_requests", "max_total_num_tokens", "context_len")},
                    costs=_costs(option.get("cost") or {}, _spared(option.get("pool_end_avail"), base)),
                    evidence=[event],
                )
            )
    return options


def _beyond(change: dict[str, Any], chosen: list[str]) -> dict[str, str | None]:
    """An option's change against the flags that were launched: what they have already is no change."""
    pairs = set(itertools.pairwise(chosen))
    wanted = {str(k): None if v is None else str(v) for k, v in change.items()}
    return {k: v for k, v in wanted.items() if v is None or (k, v) not in pairs} or wanted


def _same(limits: dict[str, Any], chosen: dict[str, Any]) -> bool:
    return all(limits.get(key) == chosen.get(key) for key in ("max_running_requests", "max_total_num_tokens"))


def _to_get(limits: dict[str, Any], chosen: dict[str, Any]) -> str:
    more_requests = (limits.get("max_running_requests") or 0) > (chosen.get("max_running_requests") or 0)
    more_tokens = (limits.get("max_total_num_tokens") or 0) > (chosen.get("max_total_num_tokens") or 0)
    if more_requests and more_tokens:
        return "more of both"
    return "more requests at once" if more_requests else "longer contexts" if more_tokens else "something else"


def _spared(then: Any, now: Any) -> float:
    """GiB per GPU that an option leaves after the pools beyond what the chosen flags leave (one plan predicts both)."""
    return float(then) - float(now) if isinstance(then, (int, float)) and isinstance(now, (int, float)) else 0.0


def _costs(cost: dict[str, Any], spare: float) -> str:
    """The planner's costs in words; `spare` is memory that graphs, the draft and long prefills gain (GiB) or lose."""
    said = (
        ("quality", "speed", "text") if spare <= -0.05 else ("quality", "speed", "risk", "text")
    )  # the number says the risk
    words = [str(cost[key]) for key in said if cost.get(key)]
    if abs(spare) >= 0.05:
        words.append(
            f"{abs(spare):.1f} GiB {'less' if spare < 0 else 'more'} spare for graphs, draft and long prefills"
        )
    return "; ".join(words) or "nothing you would notice"
