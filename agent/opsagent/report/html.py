"""The report as one HTML file: what Markdown says, with pictures, and with the evidence of each claim in the same file."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from opsagent.html import fragment, page
from opsagent.html.page import flags
from opsagent.protocols import Event
from opsagent.report import html_pictures as pictures
from opsagent.report import markdown as words
from opsagent.report.html_cells import Rows, changes, code, proof, strong, tone
from opsagent.report.html_evidence import excerpts
from opsagent.report.model import StatusReport
from opsagent.report.trouble import trouble
from opsagent.report.words import readable
from opsagent_tools.sglang.diagnosis import CAUSES

MEANING: dict[str, tuple[str, str]] = {
    "verified": ("good", "The goal is reached and every check of the runbook passed."),
    "failed": ("bad", "The work failed: a check stayed red or a call failed, and no remedy was left."),
    "invalid": ("bad", "The command, the configuration or the runbook cannot be used as it is."),
    "transient": ("warn", "The infrastructure failed in a way that often passes. It is safe to try again."),
    "waiting-approval": ("warn", "It waits for a decision and has kept its state: approve, then go on."),
    "budget": ("warn", "A budget was used up before the work was done."),
    "denied": ("bad", "The policy refused a call that the work needs."),
    "unknown-outcome": ("bad", "A call was cut off and nobody knows whether it took effect: look at the host first."),
    "model-unusable": ("bad", "The model that chooses the calls cannot be used; no host is to blame."),
    "replay-mismatch": ("bad", "The recorded run and this one went apart."),
    "interrupted": ("warn", "It was interrupted at an event boundary and can go on."),
}
"""Status → (tone, what it means for the reader)."""


def render(report: StatusReport, events: Sequence[Event], *, viewer: str = "") -> str:
    """The whole document. `events` are those of the journal, for the excerpts; `viewer` is the address of the transcript
    viewer beside it (`transcript.html`), when there is one.
    """
    report = readable(report)
    shown = excerpts(report, events)
    known = {excerpt.id for excerpt in shown}
    mood, meaning = MEANING[report.status]
    body = fragment(
        "report.html.j2",
        report=report,
        headline=report.headline or report.runbook,
        mood=mood,
        meaning=meaning,
        trouble=trouble(report),
        contents=contents(report, bool(shown)),
        limits=_limits(report, known),
        request="\n".join(words.request_lines(report.endpoint)) if report.endpoint else "",
        access=words.access_text(report.endpoint) if report.endpoint else "",
        deployment=_deployment(report),
        command="\n".join(words.wrapped(report.deployment.argv, 96)) if report.deployment else "",
        bars=pictures.bars(report),
        bar_head=pictures.bar_head(report),
        bar_rows=pictures.bar_rows(report),
        bar_notes=pictures.bar_notes(report),
        frontier=pictures.frontier(report),
        frontier_caption=pictures.frontier_caption(report),
        frontier_rows=pictures.frontier_rows(report, known),
        wish=pictures.wish_text(report),
        compared=_compared(report, known),
        checks=_checks(report, known),
        change=changes,
        known_cause=CAUSES.get,
        changes=_changes(report, known),
        loads=words.loads_text(report.weight_loads).capitalize(),
        proof=lambda evidence: proof(evidence, known),
        excerpts=shown,
        viewer=viewer,
        spent=_spent(report),
    )
    title = f"{report.headline or report.runbook} · {report.status}" + (" · SIMULATED" if report.simulated else "")
    return page(title, body, simulated=(report.lab or "lab") if report.simulated else "", kind="report")


def contents(report: StatusReport, evidence: bool) -> list[tuple[str, str]]:
    """(anchor, title) of the sections that this report has, in their order."""
    problem = trouble(report)
    sections = [
        ("failed", problem.title if problem else "", problem is not None),
        ("use", "Use it", report.endpoint is not None),
        ("limits", "Limits", bool(report.limits)),
        ("open", "Open questions", bool(report.open)),
        ("why", "Why these limits", bool(report.why or report.budget)),
        ("options", "If you want something else", len(report.frontier) > 1),
        ("notice", "What you will notice", bool(report.behaviours)),
        ("compared", "Predicted against logged", bool(report.limits or report.predicted_logged)),
        ("checked", "Checked", bool(report.verification)),
        ("incidents", "Incidents", bool(report.incidents)),
        ("changed", "What changed", bool(report.changes)),
        ("runs", "How it runs", report.deployment is not None),
        ("undo", "Stop, roll back, go on", bool(report.stop or report.undo or report.resume)),
        ("noise", "Seen and harmless", bool(report.noise)),
        ("evidence", "Evidence", evidence),
    ]
    return [(anchor, title) for anchor, title, there in sections if there]


def _limits(report: StatusReport, known: set[str]) -> Rows:
    return [
        (words.LIMIT_NAMES.get(limit.name, limit.name), strong(words.number(limit.value)), flags(limit.bound_by),
         words.predicted_value(limit), proof(limit.evidence, known))
        for limit in report.limits
    ]  # fmt: skip


def _deployment(report: StatusReport) -> list[tuple[str, str | Markup]]:
    """(name, value) of what runs where."""
    made = report.deployment
    if made is None:
        return []
    cards = f"{len(made.gpus)} × {made.gpus[0]}" if made.gpus else ""
    facts: list[tuple[str, str | Markup]] = [
        ("host", made.host),
        ("model", " ".join(filter(None, (made.model, made.dtype)))),
        ("GPUs", ", ".join(filter(None, (cards, f"tensor parallel {made.tp}")))),
        ("SGLang", made.sglang),
        ("speculation", made.speculation or "none"),
        ("unit", code(made.unit) if made.unit else ""),
        ("log", code(made.log) if made.log else ""),
        ("environment", code(" ".join(f"{k}={v}" for k, v in made.env.items())) if made.env else ""),
        ("started by", made.started_by),
    ]
    return [fact for fact in facts if fact[1]]


def _compared(report: StatusReport, known: set[str]) -> Rows:
    rows: Rows = []
    for limit in report.limits:
        if limit.predicted is not None:
            name, value = words.LIMIT_NAMES.get(limit.name, limit.name), words.number(limit.value)
            off = _off(limit.predicted, limit.value)
            rows.append((name, words.predicted_value(limit), value, off, proof(limit.evidence, known)))
    for line in report.predicted_logged:
        name, off = line.name.replace("_", " ") + ", GiB per GPU", _off(line.predicted, line.logged)
        rows.append((name, words.gib(line.predicted), words.gib(line.logged), off, proof(line.evidence, known)))
    return rows


def _off(predicted: float | None, logged: float | None) -> str:
    """The error of the prediction in per cent of what was logged."""
    if not predicted or not logged:
        return "–"
    return "exact" if predicted == logged else f"{(predicted - logged) / logged:+.2%}"


def _checks(report: StatusReport, known: set[str]) -> Rows:
    marks = {True: tone("ok", "good"), False: tone("FAILED", "bad"), None: tone("not asked", "plain")}
    return [
        (probe.probe.replace("_", " "), marks[probe.ok], probe.detail, proof(probe.evidence, known))
        for probe in report.verification
    ]


def _changes(report: StatusReport, known: set[str]) -> list[tuple[str, Rows]]:
    """(host, rows) for each host."""
    hosts: dict[str, Rows] = {}
    for change in report.changes:
        hosts.setdefault(change.host, []).append(
            (change.what, words.short_hash(change.before) or "–", words.short_hash(change.after) or "–",
             proof(change.evidence, known))
        )  # fmt: skip
    return list(hosts.items())


def _spent(report: StatusReport) -> str:
    used = report.usage
    tokens = used.tokens.get("in")
    read = f", {words.number(tokens)} + {words.number(used.tokens.get('out'))} tokens" if tokens is not None else ""
    return f"{used.calls} calls, {used.turns} turns{read}, {used.wall_s:.0f} s"
