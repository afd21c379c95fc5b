"""Recording small runs to replay: the counter world of the loop's tests, in a run folder."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from loop.world import HEAD, TOOLS, TWO_STEPS, CounterHost, ScriptedGate

from opsagent.autopilot import Autopilot
from opsagent.conversation import SYSTEM
from opsagent.journal import FileJournal
from opsagent.journal.disk import Disk
from opsagent.progress import Progress
from opsagent.protocols import Model
from opsagent.redact import Redactor
from opsagent.run import Run
from opsagent.runbook.parse import parse
from opsagent.session import Session, conduct
from opsagent_tools.tool import Tool


def record(
    folder: Path, body: str = TWO_STEPS, *, host: CounterHost | None = None, gate: ScriptedGate | None = None,
    model: Model | None = None, resume: bool = False, redactor: Redactor | None = None,
    tools: Mapping[str, Tool[Any, Any]] = TOOLS, disk: Disk | None = None,
    schemas: dict[str, Any] | None = None, prompt: bool = True, **more: Any,
) -> Run:  # fmt: skip
    """Run (or resume) the counter's runbook in a folder, to its end or to the signal that ends the process.

    `prompt` false: as older versions recorded, without the system prompt's blob.
    """
    text = HEAD + textwrap.dedent(body)
    runbook, _faults = parse(text, "count.md")
    assert runbook is not None
    opened = FileJournal.resume if resume else FileJournal.create
    journal = opened(folder, redactor, disk=disk)
    counter = host or CounterHost()
    run = Run(
        id="t1", runbook=runbook, journal=journal, gate=gate or ScriptedGate(), tools=tools,
        role_names={"box": "box"}, open_host=lambda _role: counter, progress=Progress.of(journal.events()), **more,
    )  # fmt: skip
    if resume:
        run.emit("run.resumed")
    else:
        book = {"name": "count", "title": "Count", "path": "count.md", "sha256": journal.blob(text.encode())}
        name = model.name if model else "autopilot"
        run.emit(
            "run.started",
            system=journal.blob(SYSTEM.encode()) if model is not None and prompt else "",
            tools=journal.blob(json.dumps(schemas).encode()) if schemas else "",
            run="t1",
            runbook=book,
            params={"goal": 2, "wish": []},
            model=name,
            hosts={"box": "box"},
        )
    try:
        conduct(Session(run, model or Autopilot(run), folder, journal, cast(Any, None)))
    finally:
        journal.close()
    return run
