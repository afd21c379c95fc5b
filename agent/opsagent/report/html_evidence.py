"""The events that a report cites, as short excerpts: the lines that a claim rests on, then the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opsagent.journal.fold import fold
from opsagent.journal.state import CallState
from opsagent.protocols import Event
from opsagent.report.model import StatusReport

CITED, REST, WIDE = 30, 120, 300
"""Lines of an excerpt, lines below the fold, characters of a value."""
ARGUMENT = 120
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")

SECTIONS = {
    "limits": "limits", "why": "why these limits", "behaviours": "what you will notice", "trade_offs": "trade-offs",
    "budget": "memory", "frontier": "limits by flags", "predicted_logged": "predicted against logged",
    "verification": "verification", "noise": "seen and harmless", "incidents": "incidents", "changes": "changes",
    "failed": "what failed",
}  # fmt: skip
"""Field of the report → what its section is called in "cited by"."""


@dataclass(frozen=True)
class Excerpt:
    """One cited event, for the page."""

    id: str
    ts: str
    title: str
    """`launch_sglang on kpro5/ct129 (c24)`, or what kind of event it is."""
    outcome: str
    arguments: str
    cited_by: list[str]
    cited: list[tuple[str, str]]
    """(path, value) of the lines that claims rest on."""
    rest: list[tuple[str, str]]
    left_out: int
    """Lines that are only in the journal."""


def excerpts(report: StatusReport, events: Sequence[Event]) -> list[Excerpt]:
    """An excerpt of every event that the report cites and the journal has, in the order of the journal."""
    sections: dict[str, list[str]] = {}
    needles: dict[str, set[str]] = {}
    for section, part in _citing(report):
        for ident in part["evidence"]:
            if section not in sections.setdefault(ident, []):
                sections[ident].append(section)
            needles.setdefault(ident, set()).update(_needles(part))
    calls = fold(events).calls
    return [_excerpt(event, sections[event.id], needles[event.id], calls) for event in events if event.id in sections]


def _citing(report: StatusReport) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of the section, part) of every part of the report that cites events."""
    for field, value in report.model_dump().items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict) and part.get("evidence"):
                yield SECTIONS.get(field, field), part


def _needles(part: dict[str, Any]) -> set[str]:
    """What to look for in an event: names and values of the part, and the numbers and causes in its sentences."""
    found: set[str] = set()
    for path, value in leaves({key: item for key, item in part.items() if key != "evidence"}):
        last = path.rpartition(".")[2]
        if last in ("name", "probe", "cause", "term"):
            found.add(value)
        if last in ("text", "what", "detail", "before", "after"):
            found.update(_SLUG.findall(value))
            found.update(number for number in map(_plain, _NUMBER.findall(value)) if len(number) > 3)
            found.update((value, value.removeprefix("sha256:"), value.replace(".", " ")))
        elif _plain(value) == value and len(value) > 2:
            found.add(value)
    return found


def _plain(text: str) -> str:
    """A number without separators and without an empty fraction: `127,136` and `127136.0` are `127136`."""
    if not _NUMBER.fullmatch(text):
        return ""
    plain = text.replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _excerpt(event: Event, sections: list[str], needles: set[str], calls: dict[str, CallState]) -> Excerpt:
    data, call = event.data, calls.get(str(event.data.get("call")))
    shown = data.get("result") if isinstance(data.get("result"), dict) else data
    lines = list(leaves(shown))
    cited = [line for line in lines if _cited(line, needles)]
    if not cited:
        cited = [line for line in lines if line[0] in ("summary", "words", "what")] or lines[:8]
    cited = cited[:CITED]
    kept = set(cited)
    rest = [line for line in lines if line not in kept]
    took = f", {data['duration_s']:.1f} s" if isinstance(data.get("duration_s"), (int, float)) else ""
    outcome = {True: "ok" + took, False: "not ok" + took}.get(data.get("ok"), "")  # type: ignore[arg-type]
    return Excerpt(
        id=event.id,
        ts=event.ts,
        title=_title(event, call),
        outcome=outcome,
        arguments=_arguments(call) if call is not None else "",
        cited_by=sections,
        cited=cited,
        rest=rest[:REST],
        left_out=max(0, len(rest) - REST),
    )


def _title(event: Event, call: CallState | None) -> str:
    if call is not None:
        return f"{call.call.tool} on {call.call.host} ({call.call.id})"
    where = " ".join(str(event.data[key]) for key in ("host", "phase", "step", "cause") if event.data.get(key))
    return f"{event.type}: {where}" if where else event.type


def _cited(line: tuple[str, str], needles: set[str]) -> bool:
    path, value = line
    names = {_plain(value) or value, path.rpartition(".")[2], path.replace(".", " ")}
    row = re.match(r"(?:name|probe)=([^,]+)", value)
    return bool((names | ({row.group(1)} if row else set())) & needles)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, value) of what an event holds; a list of plain values, or of small objects, stands on one line each."""
    if isinstance(value, dict):
        plain = [item for item in value.items() if not isinstance(item[1], (dict, list))]
        nested = [item for item in value.items() if isinstance(item[1], (dict, list))]
        for key, item in plain + nested:
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        if all(not isinstance(item, (dict, list)) for item in value):
            if value:
                yield path, _clip(", ".join(map(_word, value)))
        else:
            for index, item in enumerate(value):
                yield from _item(item, f"{path}[{index}]")
    elif value is not None and value != "":
        yield path, _clip(_word(value))


def _item(item: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(item, dict) and all(not isinstance(inner, (dict, list)) for inner in item.values()):
        yield path, _clip(", ".join(f"{key}={_word(inner)}" for key, inner in item.items() if inner not in (None, "")))
    else:
        yield from leaves(item, path)


def _word(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}[value] if isinstance(value, bool) or value is None else str(value)
    )


def _clip(text: str, width: int = WIDE) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}… ({len(text):,} characters)"


def _arguments(call: CallState) -> str:
    """The arguments on one line; a result that was handed over stands as its summary."""
    return ", ".join(_given(call.call.args))


def _given(args: dict[str, Any]) -> Iterable[str]:
    for key, value in args.items():
        if value in (None, "", [], {}, False):
            continue
        if isinstance(value, dict):
            text = str(value.get("summary") or ", ".join(f"{path}={item}" for path, item in leaves(value)))
        else:
            text = " ".join(map(_word, value)) if isinstance(value, list) else _word(value)
        yield f"{key}: {_clip(text, ARGUMENT)}"
