"""What a report says, one statement at a time, each with the events that prove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from opsagent.report.markdown import change_text, limits_text, number, short_hash
from opsagent.viewer.model import Claim

Said = dict[str, Any]


def claims_of(report: Said, known: int) -> tuple[Claim, ...]:
    """The claims of a report (`report.json`, as it was read). `known` is the number of events: others are missing.

    A part that this version does not know is shown by its own words.
    """
    found: list[Claim] = []
    for field, value in report.items():
        for said in _dicts(value):
            title, text = PARTS.get(field, (field.replace("_", " "), _anything))
            try:
                words = text(said)
            except (KeyError, TypeError, ValueError, AttributeError):
                words = _anything(said)
            cited = [str(event) for event in said["evidence"]]
            there = tuple(dict.fromkeys(event for event in cited if _seq(event) in range(1, known + 1)))
            missing = tuple(event for event in cited if _seq(event) not in range(1, known + 1))
            found.append(Claim(f"claim-{len(found) + 1}", title, words, there, missing))
    order = {title: place for place, (title, _text) in enumerate(PARTS.values())}
    return tuple(sorted(found, key=lambda claim: order.get(claim.part, len(order))))


def _seq(event: str) -> int:
    """N of `eN`, 0 for what is no event."""
    digits = event[1:]
    return int(digits) if event[:1] == "e" and digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def _dicts(value: Any) -> Iterator[Said]:
    """The statements of one field: objects that cite events."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and isinstance(item.get("evidence"), list):
            yield item


def _limit(said: Said) -> str:
    predicted = "" if said.get("predicted") is None else f", predicted {number(said['predicted'])}"
    bound = f", bound by {said['bound_by']}" if said.get("bound_by") else ""
    return f"{str(said['name']).replace('_', ' ')}: {number(said['value'])}{bound}{predicted}"


def _text(said: Said) -> str:
    return str(said["text"])


def _line(said: Said) -> str:
    values = [f"{word} {said[word]:.2f}" for word in ("predicted", "logged") if said.get(word) is not None]
    return f"{str(said['name']).replace('_', ' ')}: {', '.join(values)} GiB"


def _trade_off(said: Said) -> str:
    costs = f"; it costs: {said['costs']}" if said.get("costs") else ""
    return f"{said['to_get']}: {change_text(said['change'])} gives {limits_text(said['limits'])}{costs}"


def _probe(said: Said) -> str:
    mark = {True: "✔", False: "✘"}.get(said.get("ok"), "–")  # type: ignore[arg-type]
    return f"{mark} {said['probe']}" + (f": {said['detail']}" if said.get("detail") else "")


def _noise(said: Said) -> str:
    return f"{said['text']} (harmless: {said['why_harmless']})"


def _incident(said: Said) -> str:
    fix = f"; remedy {change_text(said['remedy'])}" if said.get("remedy") else ""
    lost = f"; cost {said.get('weight_loads_lost', 0)} weight loads"
    state = "" if said.get("resolved") else "; not resolved"
    return f"{said.get('what') or said['cause']} ({said['cause']}, found by {said.get('found_by') or '?'}{fix}{lost}{state})"


def _change(said: Said) -> str:
    before, after = short_hash(str(said.get("before") or "nothing")), short_hash(str(said.get("after") or "nothing"))
    return f"{said['host']}: {said['what']}: {before} → {after}"


def _point(said: Said) -> str:
    name = {"asked": "as asked", "chosen": "chosen"}.get(str(said.get("kind")), f"option {said['mark']}")
    change = f" with {change_text(said['change'])}" if said.get("change") else ""
    return f"{name}: {limits_text(said)}, context {number(said.get('context_len'))}{change}"


def _memory(said: Said) -> str:
    """One GPU's budget in words; the report has the picture."""
    terms = ", ".join(f"{part['term'].replace('_', ' ')} {part['gib']:.2f}" for part in said["segments"])
    return f"{said['label']} ({said['source']}), {said['whole_gib']:.2f} GiB: {terms}"


def _anything(said: Said) -> str:
    words = {key: value for key, value in said.items() if key != "evidence" and value not in (None, "", [], {})}
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in words.items())


PARTS: dict[str, tuple[str, Callable[[Said], str]]] = {
    "failed": ("Why it ended", _text),
    "limits": ("Limits", _limit),
    "why": ("Why these limits", _text),
    "behaviours": ("You will notice", _text),
    "predicted_logged": ("Predicted against logged", _line),
    "verification": ("Checked", _probe),
    "incidents": ("Incidents", _incident),
    "noise": ("Seen and harmless", _noise),
    "changes": ("Changed on the hosts", _change),
    "budget": ("Memory of each GPU", _memory),
    "frontier": ("Context against requests", _point),
    "trade_offs": ("If you want something else", _trade_off),
}
"""Field of the report → its heading, and the words of one statement."""
