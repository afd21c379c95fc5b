"""One attempt of a model at one task: a run as any other, judged by the oracle on the hosts and on the report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from opsagent.checked import checked_runbook
from opsagent.data import find_runbook
from opsagent.journal.fold import fold
from opsagent.journal.reader import read_log
from opsagent.places import lab_places
from opsagent.run import Watcher
from opsagent.session import Wish, begin, conduct
from opsagent.verify import verify
from opsagent_lab import scenario
from opsagent_lab.evaluation.suite import Task


class Trial(BaseModel):
    """What an attempt came to. `passed` is the oracle's word and the journal's, never the model's."""

    model_config = ConfigDict(frozen=True)

    scenario: str
    runbook: str
    attempt: int
    passed: bool
    problems: list[str]
    """Expectations that do not hold, in words; empty when passed."""
    status: str
    exit_code: int
    calls: int
    denials: int
    turns: int
    """Answers of the model."""
    tokens: int | None
    """In and out; None when the endpoint does not say."""
    weight_loads: int
    seconds: float
    """Of this machine's clock, not of the simulated one."""
    folder: str


def attempt(
    task: Task, number: int, folder: Path, *, llm: str, watcher: Callable[[Wish], Watcher] | None = None
) -> Trial:
    """Let the model work on fresh hosts; the run stays in `folder`, to be shown and replayed like any other.

    Raises InputError before anything runs for a runbook or a role that is not there.
    """
    book = checked_runbook(find_runbook(f"runbooks/{task.runbook or scenario.load(task.scenario).runbook}.md"))
    places = lab_places(book, task.scenario)
    lab = places.lab
    places.closers.clear()  # the oracle looks at the hosts after the run
    begun = time.monotonic()
    try:
        wish = Wish(runbook=book, places=places, params=task.params, llm=llm, folder=folder)
        with begin(wish, watcher=watcher(wish) if watcher else None) as session:
            report = conduct(session)
        seconds = time.monotonic() - begun
        problems = lab.oracle(json.loads((folder / "report.json").read_text()))
    finally:
        lab.close()
    problems += [f"{finding.where}: {finding.what}" for finding in verify(folder).findings]
    usage = fold(read_log(folder).events).usage
    tokens = None if usage.tokens_in is None or usage.tokens_out is None else usage.tokens_in + usage.tokens_out
    return Trial(
        scenario=task.scenario, runbook=book.name, attempt=number, passed=not problems, problems=problems,
        status=report.status, exit_code=report.exit_code, calls=usage.calls, denials=usage.denials, turns=usage.turns,
        tokens=tokens, weight_loads=report.weight_loads, seconds=round(seconds, 1), folder=str(folder),
    )  # fmt: skip
