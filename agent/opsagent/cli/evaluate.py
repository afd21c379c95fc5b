"""`opsagent eval SUITE`: how well a model does on simulated hosts, measured by what became of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from opsagent_lab.evaluation import Suite, Summary, Trial

RESULTS = "trials.jsonl"


def suites(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from opsagent_lab import evaluation, scenario

    known = [*evaluation.names(), *scenario.names()]
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


@click.command("eval", short_help="Measure a model on the lab's scenarios.")
@click.argument("suite", shell_complete=suites)
@click.option("--llm", default="", metavar="NAME", help="Model at OPENAI_BASE_URL; default: the autopilot.")
@click.option(
    "--repeat", type=click.IntRange(1, 100), default=None, help="Attempts of each task (default: the suite's)."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=None, help="Folder of the runs and results."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def command(suite: str, llm: str, repeat: int | None, out: Path | None, as_json: bool) -> int:
    """Let a model work through SUITE and judge it by the oracles.

    SUITE is `smoke`, `repairs`, `trust`, `all`, a .toml file, or one scenario. An oracle looks at the state of the hosts and
    at the report, never at prose. Each attempt has hosts of its own and stays as a run in --out, to be shown, replayed and
    compared. Attempts that are already in --out are not made again.

    \b
    Examples:
      opsagent eval smoke                                  # the autopilot
      opsagent eval repairs --llm Qwen3.6-27B --repeat 5 --out eval-qwen
      opsagent eval broken-port --llm Qwen3.6-27B --json

    Exit: 0 every attempt passed, 1 not every one, 2 usage, 8 the model could not be used.
    """
    from opsagent.cli import fail
    from opsagent.xdg import state_home
    from opsagent_lab.evaluation import load, summarise
    from opsagent_tools.errors import ExitCode, OpsError

    model = llm or os.environ.get("OPSAGENT_LLM", "") or "autopilot"
    try:
        wanted = load(suite)
        folder = out or state_home() / "eval" / f"{Path(suite).stem}-{model.replace('/', '-')}"
        trials = list(_attempts(wanted, repeat or wanted.repeat, model, folder))
    except OpsError as error:
        return fail(error, as_json=as_json)
    summary = summarise(wanted.name, model, trials)
    (folder / "summary.json").write_text(summary.model_dump_json(indent=1), encoding="utf-8")
    if as_json:
        click.echo(summary.model_dump_json(indent=1))
    else:
        _show(summary)
    click.echo(f"runs and results: {folder}", err=True)
    if all(trial.exit_code == ExitCode.MODEL_UNUSABLE for trial in trials):
        return int(ExitCode.MODEL_UNUSABLE)
    return 0 if summary.passed == summary.trials else 1


def _attempts(suite: Suite, repeat: int, model: str, folder: Path) -> Iterator[Trial]:
    """The trials in order, those of an earlier, interrupted evaluation first; each is on disk before the next begins."""
    from opsagent_lab.evaluation import Trial, attempt

    folder.mkdir(parents=True, exist_ok=True)
    results = folder / RESULTS
    done = {}
    for line in results.read_text(encoding="utf-8").splitlines() if results.is_file() else ():
        row = json.loads(line)
        done[row["model"], row["scenario"], row["runbook_asked"], row["attempt"]] = Trial.model_validate(row["trial"])
    total, number = len(suite.tasks) * repeat, 0
    for task in suite.tasks:
        for index in range(1, repeat + 1):
            number += 1
            key = (model, task.scenario, task.runbook, index)
            if key not in done:
                click.echo(f"[{number}/{total}] {task.scenario} …", err=True, nl=False)
                done[key] = attempt(task, index, _fresh(folder / f"{Path(task.scenario).stem}-{index}"), llm=model)
                row = dict(zip(("model", "scenario", "runbook_asked", "attempt"), key, strict=True))
                with results.open("a", encoding="utf-8") as sink:
                    sink.write(json.dumps({**row, "trial": done[key].model_dump()}) + "\n")
                click.echo(f" {_word(done[key])}", err=True)
            yield done[key]


def _fresh(folder: Path) -> Path:
    """A folder that is not there yet: an interrupted attempt keeps its own, to be looked at."""
    number, found = 1, folder
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}.{number}")
    return found


def _word(trial: Trial) -> str:
    return "passed" if trial.passed else f"failed: {trial.problems[0]}"


def _show(summary: Summary) -> None:
    from rich.console import Console
    from rich.table import Table

    from opsagent.fence import neutral

    low, high = summary.interval
    title = (
        f"{summary.suite} · {summary.model} · SIMULATED · {summary.passed} of {summary.trials} passed "
        f"(95 %: {low:.0%} to {high:.0%}) · {summary.every_time} of {summary.tasks} tasks every time"
    )
    click.echo(title)
    table = Table(box=None)
    for name in ("scenario", "result", "status", "calls", "refused", "loads", "tokens", "s"):
        table.add_column(name, justify="left" if name in ("scenario", "result", "status") else "right")
    for trial in summary.results:
        tokens = "-" if trial.tokens is None else f"{trial.tokens:,}"
        table.add_row(
            f"{trial.scenario} #{trial.attempt}", neutral(_word(trial)), trial.status, str(trial.calls),
            str(trial.denials), str(trial.weight_loads), tokens, f"{trial.seconds:.0f}",
        )  # fmt: skip
    Console().print(table)
