"""What a run that did not end verified tells its reader: what went wrong, and what it would take to go on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsagent.report.model import StatusReport
from opsagent.report.words import change_text

_WAITS = re.compile(r"(?P<call>\w+ \(c\d+\)) waits: (?P<command>opsagent approve [\w-]+ c\d+)")
"""Exactly what `report.build` says: an open question may be a model's words, and the command will be pasted."""
TITLES = {"waiting-approval": "What it waits for", "denied": "What was refused", "budget": "What ran out",
          "interrupted": "Where it stopped", "unknown-outcome": "What is not known"}  # fmt: skip
AGAIN = {
    "failed": "Mend the cause, then run the runbook again: it looks first and makes only what is missing.",
    "invalid": "Correct what is named, then run it again; opsagent lint and --dry-run find it before anything is done.",
    "transient": "Nothing has to be changed here: try again when the host or the endpoint answers.",
    "budget": "Raise the budget in the runbook's front matter.",
    "denied": "Run it where a person may approve the call (--approve ask), or without it; what the policy says and why:",
    "unknown-outcome": "Look at the host, then answer when it goes on: whether the call took effect decides what is next.",
    "model-unusable": "Name another model with --llm, or leave it out: the built-in autopilot needs none.",
    "replay-mismatch": "Compare the two runs:",
}
"""Status → what to do, in a sentence. Those that only go on need none."""
DRY_RUN = "The dry run"
"""How the reason begins when a run ended only because it was to change nothing."""
COMMANDS = {"denied": "opsagent policy explain", "replay-mismatch": "opsagent diff"}


@dataclass(frozen=True)
class Trouble:
    """The section of a run that did not end verified."""

    title: str
    takes: list[tuple[str, str]]
    """(sentence, command that can be pasted or ''), in the order of doing."""


def trouble(report: StatusReport) -> Trouble | None:
    """None when the run ended verified."""
    if report.status == "verified":
        return None
    if report.failed is not None and report.failed.text.startswith(DRY_RUN):
        return Trouble("Where it stopped", [("Nothing was changed. To do it, run the same without --dry-run.", "")])
    takes = [
        (f"Look at {match['call']} and decide:", match["command"])
        for match in map(_WAITS.fullmatch, report.open)
        if match is not None
    ]
    for incident in report.incidents:
        if report.status == "failed" and not incident.resolved:
            known = f"; what helps: {change_text(incident.remedy)}" if incident.remedy else ""
            takes.append((f"Not resolved: {incident.cause}{known}.", ""))
    if report.status in AGAIN:
        takes.append((AGAIN[report.status], COMMANDS.get(report.status, "")))
    if report.resume:
        takes.append(("Go on where it stopped:", report.resume))
    if report.undo:
        takes.append(("Take back what the run did:", report.undo))
    return Trouble(TITLES.get(report.status, "What failed"), takes)
