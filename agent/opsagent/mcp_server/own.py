"""Tools that only an assistant's session has: they read files and runs of this machine, or start a run of a runbook."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from opsagent_tools.errors import InputError
from opsagent_tools.tool import Args, Context, Result, Tool

if TYPE_CHECKING:
    from opsagent.journal.runs import Opened

MOST_CHARS = 40_000
"""Of a transcript or a report, in one answer."""


class PlanArgs(Args):
    model: str = Field(description="Model directory on this machine (config.json is enough), or a config.json.")
    gpu: str = Field(description='Card and its memory.total in MiB, e.g. "RTX A6000:49140".')
    num_gpus: int = Field(default=1, ge=1, description="Cards of this kind.")
    free_gib: float | None = Field(default=None, description="Free GiB per card before loading; estimated if left out.")
    sglang: str = Field(default="", description="SGLang's version; the newest that is modelled if left out.")
    want_context: int | None = Field(default=None, ge=1, description="Context length that is wanted, tokens.")
    want_concurrency: int | None = Field(default=None, ge=1, description="Requests at once that are wanted.")
    keep: list[str] = Field(default=[], description="What must not change: speculation, precision, or a flag.")
    flags: list[str] = Field(default=[], description='SGLang\'s own flags, one word each, e.g. ["--tp", "2"].')


class PlanResult(Result):
    plan: dict[str, Any]
    """As `opsagent plan --json` prints it."""


class DiagnoseArgs(Args):
    path: str = Field(default="", description="The log's path on this machine. On a host: use tail_log.")
    text: str = Field(default="", description="The log itself, instead of a path.")
    sglang: str = Field(default="", description="Version of SGLang that wrote the log, when known.")


class DiagnoseResult(Result):
    diagnosis: dict[str, Any]
    """As `opsagent diagnose --json` prints it."""


class RunsArgs(Args):
    most: int = Field(default=20, ge=1, le=200, description="How many of the newest runs.")


class RunsResult(Result):
    runs: list[dict[str, Any]]


class ShowArgs(Args):
    run: str = Field(description="Id of a run, the beginning of one, or a path.")
    what: str = Field(
        default="report", pattern="^(report|transcript|events)$", description="report, transcript, events."
    )
    events: list[str] = Field(default=[], description='With `events`: only these, in full, e.g. ["e41"].')
    offset: int = Field(default=0, ge=0, description="Characters to skip, to read on.")


class ShowResult(Result):
    run: str
    status: str
    waiting: list[str] = []
    """Calls that wait for a person."""
    text: str
    next_offset: int | None = None
    """Where to read on; null at the end."""


def _plan(_host: object, args: PlanArgs, _ctx: Context) -> PlanResult:
    from opsagent.cli.plan import predict

    found = predict(
        args.model, args.gpu, str(args.num_gpus), _text(args.free_gib), args.sglang or None, _text(args.want_context),
        _text(args.want_concurrency), tuple(args.keep), tuple(args.flags),
    )  # fmt: skip
    plan = json.loads(found.model_dump_json(exclude_defaults=False))
    return PlanResult(plan=plan, summary=f"{found.verdict}: {found.model}")


def _text(value: float | None) -> str | None:
    return None if value is None else str(value)


def _diagnose(_host: object, args: DiagnoseArgs, _ctx: Context) -> DiagnoseResult:
    from opsagent.cli.diagnose import diagnose_log
    from opsagent_tools.sglang.diagnosis import diagnose

    if bool(args.path) == bool(args.text):
        raise InputError("give `path` or `text`, one of them", where="diagnose")
    version = args.sglang or None
    try:
        found = diagnose_log(args.path, version) if args.path else diagnose(args.text.encode(), version=version)
    except OSError as error:
        raise InputError(f"cannot read the log: {error.strerror or error}", where=args.path) from error
    return DiagnoseResult(diagnosis=found.model_dump(mode="json"), summary=found.summary)


def _runs(_host: object, args: RunsArgs, _ctx: Context) -> RunsResult:
    from opsagent.cli.runs import row
    from opsagent.journal.runs import Opened, all_runs

    rows = [
        row(item) if isinstance(item, Opened) else {"run": item[0].name, "status": "damaged", "what": item[1].what}
        for item in islice(all_runs(), args.most)
    ]
    return RunsResult(runs=rows, summary=f"{len(rows)} runs")


def _show(_host: object, args: ShowArgs, _ctx: Context) -> ShowResult:
    from opsagent.journal.runs import open_run

    opened = open_run(args.run)
    if args.what == "events":
        text = events_text(opened, args.events)
    else:
        text = transcript_text(opened) if args.what == "transcript" else report_text(opened)
    part = text[args.offset : args.offset + MOST_CHARS]
    end = args.offset + len(part)
    return ShowResult(
        run=str(opened.state.run), status=opened.status, waiting=[c.call.id for c in opened.state.waiting], text=part,
        next_offset=end if end < len(text) else None, summary=f"run {opened.state.run}: {opened.status}",
    )  # fmt: skip


def report_text(opened: Opened) -> str:
    """The run's report as Markdown; of a run that has none yet, its transcript."""
    path = opened.folder / "report.md"
    return path.read_text(encoding="utf-8") if path.is_file() else transcript_text(opened)


def transcript_text(opened: Opened) -> str:
    """The run as lines, each with the event behind it."""
    from opsagent.transcript import Transcript, header

    lines = [header(opened.log.events, opened.status)]
    lines += [f"{each.event:>6} {'  ' * each.depth}{each.text}" for each in Transcript().lines(opened.log.events)]
    return "\n".join(lines) + "\n"


def events_text(opened: Opened, names: list[str]) -> str:
    """Events in full, as JSON lines. Raises InputError for one that is not there."""
    events = opened.log.events
    wanted = {int(name.removeprefix("e")) for name in names if name.removeprefix("e").isdigit()}
    if len(wanted) != len(set(names)) or any(not 0 < seq <= len(events) for seq in wanted):
        raise InputError("no such event", where=", ".join(names), hint=f"e1 to e{len(events)}")
    chosen = [event for event in events if not wanted or event.seq in wanted]
    found = [{"id": event.id, "ts": event.ts, "type": event.type, "data": event.data} for event in chosen]
    return "\n".join(json.dumps(each, ensure_ascii=False) for each in found)


PLAN = Tool(
    "plan",
    "Predict the memory, the limits and better flags of an SGLang launch from a model directory on this machine. Nothing is "
    "started, no host is asked; for a model on a host use read_config and estimate_vram.",
    PlanArgs, PlanResult, _plan,
)  # fmt: skip
DIAGNOSE = Tool(
    "diagnose",
    "Name the cause of a failed or sick SGLang server from its log: a file on this machine, or its text.",
    DiagnoseArgs, DiagnoseResult, _diagnose,
)  # fmt: skip
RUNS = Tool("runs", "List the runs on this machine, newest first: where, how they ended, what waits for a person.",
            RunsArgs, RunsResult, _runs)  # fmt: skip
SHOW = Tool(
    "show", "Show a run: its report, its transcript, or single events (the evidence behind a claim).",
    ShowArgs, ShowResult, _show,
)  # fmt: skip
READING: dict[str, Tool[Any, Any]] = {tool.name: tool for tool in (PLAN, DIAGNOSE, RUNS, SHOW)}


def absolute(path: str) -> str:
    """A path of this machine as the gate judges it."""
    return str(Path(path).expanduser().resolve())
