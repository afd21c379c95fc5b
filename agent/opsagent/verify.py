"""Is a run folder what was written: journal, blobs, the order of every effect, and a report that says what the journal does.

It finds damage and clumsy changes. Somebody who can rewrite the whole folder can also make the chain fit; against that
helps only the head's hash, kept somewhere else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsagent.journal.fold import fold
from opsagent.journal.format import EVENT_TYPES
from opsagent.journal.lock import is_live
from opsagent.journal.reader import BLOBS, Log, read_blob, read_log
from opsagent.protocols import Event
from opsagent.replay.compare import first_difference
from opsagent_tools.errors import OpsError, TranscriptDamaged


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where."""

    where: str
    what: str


@dataclass
class Verification:
    """What was looked at and found."""

    folder: Path
    events: int = 0
    blobs: int = 0
    head: str = ""
    """Digest of the last line: keep it elsewhere, and any later change shows."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Worth knowing, not wrong."""

    @property
    def ok(self) -> bool:
        return not self.findings

    def wrong(self, where: str, what: str) -> None:
        self.findings.append(Finding(where, what))


def verify(folder: Path) -> Verification:
    """Check a run folder. Raises InputError when there is no journal; everything else is a finding."""
    found = Verification(folder)
    try:
        log = read_log(folder)
        fold(log.events)
    except TranscriptDamaged as error:
        found.wrong(error.where or str(folder), error.what)
        return found
    found.events, found.head = len(log.events), log.head
    if log.torn:
        found.notes.append(f"line {log.torn_line} is torn ({len(log.torn)} bytes): it was never acted upon")
    if is_live(folder):
        found.notes.append("a process is writing this run")
    _effects(found, log.events)
    _blobs(found, log)
    _report(found, log)
    return found


# --- order of effects ----------------------------------------------------------------------------------------------


def _effects(found: Verification, events: Sequence[Event]) -> None:
    """Every effect was intended and approved before it began, and what was approved is what was judged."""
    judged: dict[str, str] = {}
    approved: set[str] = set()
    started: set[str] = set()
    if events and events[0].type != "run.started":
        found.wrong("e1", f"the journal begins with {events[0].type}")
    for event in events:
        call = event.data.get("call")
        call = call if isinstance(call, dict) else str(call)
        if event.type not in EVENT_TYPES:
            found.notes.append(f"{event.id} has the unknown type {event.type}")
        elif event.type == "call.intent" and isinstance(call, dict):
            judged[str(call.get("id"))] = str((event.data.get("verdict") or {}).get("binding", ""))
        elif event.type == "approval.decided":
            _decided(found, event, judged, approved)
        elif event.type == "call.started":
            if call not in judged:
                found.wrong(event.id, f"{call} began without an intent")
            elif call not in approved:
                found.wrong(event.id, f"{call} began without an approval")
            started.add(str(call))
        elif event.type in ("call.finished", "call.unknown", "call.reconciled") and call not in started:
            found.wrong(event.id, f"{call} has {event.type} but never began")


def _decided(found: Verification, event: Event, judged: dict[str, str], approved: set[str]) -> None:
    call, binding = str(event.data.get("call")), str(event.data.get("binding") or "")
    if event.data.get("answer") != "approve":
        approved.discard(call)
        return
    if call not in judged:
        found.wrong(event.id, f"{call} was approved without an intent")
    elif binding and binding != judged[call]:
        found.wrong(event.id, f"{call}: the approval is for something else than what was judged")
    approved.add(call)


# --- blobs ---------------------------------------------------------------------------------------------------------


def cited_blobs(event: Event) -> Iterator[str]:
    """The sha256 of every blob that an event names."""
    data = event.data
    found: list[Any] = []
    if event.type == "run.started":
        found += [(data.get("runbook") or {}).get("sha256"), data.get("tools"), data.get("policy"), data.get("system")]
    if event.type == "drift.accepted":
        found.append(data.get("blob"))
    output = data.get("output")
    found += list(output.values()) if isinstance(output, dict) else output if isinstance(output, list) else []
    for value in found:
        if isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef"):
            yield value


def _blobs(found: Verification, log: Log) -> None:
    for event in log.events:
        for sha256 in cited_blobs(event):
            try:
                read_blob(found.folder, sha256)
            except OpsError as error:
                found.wrong(event.id, error.what)
    folder = found.folder / BLOBS
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith("."):
            found.notes.append(f"{path.name} is left from an interrupted write")
            continue
        found.blobs += 1
        if hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
            found.wrong(f"{BLOBS}/{path.name[:12]}…", "the content does not have this sha256")


# --- report --------------------------------------------------------------------------------------------------------


def evidence_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every event that a report cites: (where in the report, event id)."""
    if isinstance(value, dict):
        for key, item in value.items():
            inner = f"{path}.{key}" if path else key
            if key == "evidence" and isinstance(item, list):
                yield from ((inner, str(ident)) for ident in item)
            else:
                yield from evidence_of(item, inner)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from evidence_of(item, f"{path}[{index}]")


def _report(found: Verification, log: Log) -> None:
    """The report cites events that are there, and is the one that this journal makes."""
    ends = [event for event in log.events if event.type == "run.finished"]
    path = found.folder / "report.json"
    if not path.exists():
        if ends:
            found.wrong("report.json", "missing, although the run has ended: `opsagent resume` writes it")
        return
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        found.wrong("report.json", f"cannot be read: {error}")
        return
    ids = {event.id for event in log.events}
    for where, ident in evidence_of(report):
        if ident not in ids:
            found.wrong(f"report.json {where}", f"cites {ident}, which is not in the journal")
    if not ends:
        found.wrong("report.json", "there is a report, but the run has not ended")
        return
    _same_report(found, report, log.events[: ends[-1].seq])


def _same_report(found: Verification, report: Any, events: Sequence[Event]) -> None:
    from opsagent.report.build import rebuild
    from opsagent.report.markdown import render

    made = rebuild(events)
    parted = first_difference(report, json.loads(made.model_dump_json()))
    if parted is not None:
        found.wrong("report.json", f"disagrees with the journal (report ≠ journal): {parted}")
    text = found.folder / "report.md"
    if not text.exists():
        found.wrong("report.md", "missing, although the run has ended")
    elif parted is None and text.read_text(encoding="utf-8") != render(made):
        found.wrong("report.md", "is not the text of this report")
