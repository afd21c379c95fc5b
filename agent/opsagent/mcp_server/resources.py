"""Runs of this machine as MCP resources: report and transcript, fenced like everything that hosts had a part in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from opsagent.fence import fence, neutral
from opsagent.journal.runs import Opened, all_runs, open_run
from opsagent.mcp_server.own import report_text, transcript_text
from opsagent_tools.errors import InputError

MOST = 50
"""Newest runs that are listed; older ones can be read by their id."""
URI = re.compile(r"opsagent://runs/(?P<run>[\w.-]+)/(?P<what>report|transcript)")
TEMPLATES = {
    "opsagent://runs/{run}/report": "The status report of a run, Markdown.",
    "opsagent://runs/{run}/transcript": "What happened in a run, line by line, with the event behind each.",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """One resource in the list."""

    uri: str
    name: str
    description: str


def listed() -> list[Listed]:
    """Reports and transcripts of the newest runs."""
    found: list[Listed] = []
    for item in islice(all_runs(), MOST):
        if not isinstance(item, Opened):
            continue
        state = item.state
        book = (state.started.get("runbook") or {}).get("name", "run")
        line = neutral(f"{book} · {item.status} · {state.first_ts[:16]}")
        run = state.run or item.folder.name
        found += [
            Listed(f"opsagent://runs/{run}/{what}", f"{what} of run {run}", line) for what in ("report", "transcript")
        ]
    return found


def read(uri: str) -> str:
    """The fenced text of a resource. Raises InputError for an address that is none, or a run that is not there."""
    match = URI.fullmatch(uri)
    if match is None:
        raise InputError(f"no resource {neutral(uri)!r}", hint=" or ".join(TEMPLATES))
    opened = open_run(match["run"])
    text = transcript_text(opened) if match["what"] == "transcript" else report_text(opened)
    return fence(text, source=f"{match['what']} of run {match['run']}")
