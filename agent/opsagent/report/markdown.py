"""The report as Markdown. Everything that came from hosts or models is escaped: it may hold anything."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence

from opsagent import fence
from opsagent.report.model import Change, Claim, Deployment, Endpoint, Limit, StatusReport
from opsagent.report.trouble import trouble
from opsagent.report.words import change_text as change_text
from opsagent.report.words import readable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~])")

_BLOCK = re.compile(r"#{1,6}(?=\s|$)|[+-](?=\s|$)|>|=+\s*$|-[\s-]*$|\d{1,9}(?=[.)](?:\s|$))")
"""What would begin a heading, a list, a quote or a rule."""


def neutral(text: object) -> str:
    """Text on one line, with every character that can deceive a reader written out."""
    return fence.neutral(str(text).replace("\r", "\n").replace("\n", " "))


def escape(text: object) -> str:
    """Text that Markdown shows as it is, also where it begins a line or a list item."""
    plain = _SPECIAL.sub(r"\\\1", neutral(text)).strip()
    begins = _BLOCK.match(plain)
    if begins is None:
        return plain
    return f"{begins[0]}\\{plain[begins.end() :]}" if begins[0].isdigit() else "\\" + plain


def code(text: object) -> str:
    """Inline code, fenced by more backticks than the text holds."""
    plain = neutral(text)
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", plain)), default=0) + 1)
    pad = " " if "`" in plain else ""
    return f"{ticks}{pad}{plain}{pad}{ticks}"


def cell_code(text: object) -> str:
    """Inline code in a cell of a table, where a bar ends the cell unless it is escaped, in code too."""
    return code(text).replace("|", "\\|")


def number(value: float | int | None) -> str:
    """A number as people read it: 126,723; 0.72; – for nothing."""
    if value is None:
        return "–"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def proof(evidence: Sequence[str]) -> str:
    return " ".join(escape(event) for event in evidence)


def render(report: StatusReport) -> str:
    """The whole report; sections without content are left out."""
    report = readable(report)
    lines = [f"# {_headline(report)}", ""]
    if report.failed is not None:
        lines += [f"**{escape(report.failed.text)}** {proof(report.failed.evidence)}", ""]
    lines += _takes(report) + _endpoint(report) + _limits(report) + _deployment(report.deployment)
    lines += _claims("Why these limits", report.why)
    lines += _claims("You will notice", report.behaviours)
    lines += _trade_offs(report) + _predicted(report) + _checked(report) + _noise(report) + _incidents(report)
    lines += _changes(report.changes) + _undo(report)
    if report.open:
        lines += ["**Open**", "", *(f"{n}. {escape(text)}" for n, text in enumerate(report.open, 1)), ""]
    return "\n".join(lines).rstrip() + "\n\n" + _footer(report) + "\n"


def _headline(report: StatusReport) -> str:
    simulated = f' · SIMULATED (lab "{escape(report.lab)}")' if report.simulated else ""
    return f"{escape(report.headline or report.runbook)} · {report.status}{simulated}"


def _takes(report: StatusReport) -> list[str]:
    problem = trouble(report)
    if problem is None or not problem.takes:
        return []
    lines = ["**What it would take**", ""]
    for text, command in problem.takes:  # paragraphs: after a list, the indented lines of the endpoint would be no code
        lines += [f"→ {escape(text)} {code(command) if command else ''}".rstrip(), ""]
    return lines


def _endpoint(report: StatusReport) -> list[str]:
    end = report.endpoint
    if end is None:
        return []
    return [
        f"    {neutral(end.url)}     OpenAI-compatible     model id: {neutral(end.model_id)}     {access_text(end)}",
        "",
        *(f"    {line}" for line in request_lines(end)),
        "",
    ]


def access_text(end: Endpoint) -> str:
    return "anyone who reaches this address may use it" if end.api_key == "none" else f"API key: {neutral(end.api_key)}"


def request_lines(end: Endpoint) -> list[str]:
    """A request that can be pasted into a shell; everything that came from a host is quoted."""
    key = "" if end.api_key == "none" else " -H 'Authorization: Bearer '\"$API_KEY\""
    body = json.dumps(
        {
            "model": end.model_id,
            "messages": [{"role": "user", "content": "Hello"}],
            "chat_template_kwargs": {"enable_thinking": False},
        }
    )
    url = shlex.quote(neutral(end.url) + "/chat/completions")
    return [f"curl {url} -H 'Content-Type: application/json'{key} \\", f"  -d {shlex.quote(body)}"]


def _limits(report: StatusReport) -> list[str]:
    if not report.limits:
        return []
    rows = [
        (escape(LIMIT_NAMES.get(limit.name, limit.name)), f"**{number(limit.value)}**", escape(limit.bound_by),
         predicted_value(limit), proof(limit.evidence))
        for limit in report.limits
    ]  # fmt: skip
    return table(("limit", "value", "bound by", "predicted", "proof"), rows)


LIMIT_NAMES = {
    "max_running_requests": "requests at once",
    "max_total_num_tokens": "tokens in all",
    "context_len": "context length",
    "max_prompt_tokens": "longest prompt",
}


def predicted_value(limit: Limit) -> str:
    if limit.interval and limit.interval[0] != limit.interval[1]:
        return f"{number(limit.predicted)} ({number(limit.interval[0])} to {number(limit.interval[1])})"
    return number(limit.predicted)


def _deployment(deployed: Deployment | None) -> list[str]:
    if deployed is None:
        return []
    cards = f"{len(deployed.gpus)} x {deployed.gpus[0]}" if deployed.gpus else f"TP {deployed.tp}"
    parts = [
        f"{escape(deployed.dtype or 'weights')} on {escape(cards)} (TP {deployed.tp})",
        f"SGLang {escape(deployed.sglang)}",
        f"MTP on ({escape(deployed.speculation)})" if deployed.speculation else "no speculation",
        f"unit {code(deployed.unit)}" if deployed.unit else "",
        f"log {code(deployed.log)}" if deployed.log else "",
    ]
    lines = [", ".join(part for part in parts if part), ""]
    if deployed.argv:
        lines += [f"    {line}" for line in wrapped(deployed.argv)] + [""]
    return lines


def wrapped(argv: Sequence[str], width: int = 118) -> list[str]:
    """The launch command, one logical line over several, broken before options."""
    lines, line = [], ""
    for word in (shlex.quote(neutral(word)) for word in argv):
        if line and len(line) + len(word) + 1 > width and word.startswith("-"):
            lines.append(line + " \\")
            line = "  " + word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def _claims(title: str, claims: Sequence[Claim]) -> list[str]:
    if not claims:
        return []
    return [f"**{title}**", "", *(f"- {escape(c.text)} {proof(c.evidence)}".rstrip() for c in claims), ""]


def _trade_offs(report: StatusReport) -> list[str]:
    if not report.trade_offs:
        return []
    rows = [
        (escape(option.to_get), cell_code(change_text(option.change)), escape(limits_text(option.limits)),
         escape(option.costs), proof(option.evidence))
        for option in report.trade_offs
    ]  # fmt: skip
    head = "**If you want something else** (predicted; cheapest change first)"
    return [head, "", *table(("to get", "change", "then", "it costs", "proof"), rows)]


def limits_text(limits: dict[str, int | float | None]) -> str:
    requests, tokens = limits.get("max_running_requests"), limits.get("max_total_num_tokens")
    return f"{number(requests)} request{'' if requests == 1 else 's'}, {number(tokens)} tokens"


def _predicted(report: StatusReport) -> list[str]:
    if not report.predicted_logged:
        return []
    rows = [
        (escape(line.name.replace("_", " ")), gib(line.predicted), gib(line.logged), proof(line.evidence))
        for line in report.predicted_logged
    ]
    return ["**Predicted against logged** (GiB per GPU)", "", *table(("term", "predicted", "logged", "proof"), rows)]


def gib(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _checked(report: StatusReport) -> list[str]:
    if not report.verification:
        return []
    mark = {True: "ok", False: "**FAILED**", None: "not asked"}
    rows = [
        (escape(probe.probe), mark[probe.ok], escape(probe.detail), proof(probe.evidence))
        for probe in report.verification
    ]
    return ["**Checked**", "", *table(("probe", "result", "detail", "proof"), rows)]


def _noise(report: StatusReport) -> list[str]:
    if not report.noise:
        return []
    rows = [f"- {code(n.text)}: {escape(n.why_harmless)} {proof(n.evidence)}".rstrip() for n in report.noise]
    return ["**Seen and harmless**", "", *rows, ""]


def _incidents(report: StatusReport) -> list[str]:
    if not report.incidents:
        return [f"{loads_text(report.weight_loads).capitalize()}.", ""] if report.weight_loads else []
    rows = []
    for item in report.incidents:
        fix = f"; remedy {code(change_text(item.remedy))}" if item.remedy else ""
        cost = f"; cost {item.weight_loads_lost} weight load{'' if item.weight_loads_lost == 1 else 's'}"
        found = f", found by {escape(item.found_by)}" if item.found_by else ""
        state = "" if item.resolved else " (**not resolved**)"
        rows.append(f"- {escape(item.what or item.cause)} ({code(item.cause)}{found}{fix}{cost}){state} "
                    f"{proof(item.evidence)}".rstrip())  # fmt: skip
    return [f"**Incidents** ({loads_text(report.weight_loads)})", "", *rows, ""]


def loads_text(count: int) -> str:
    return {0: "no weights were loaded", 1: "weights were loaded once"}.get(count, f"weights were loaded {count} times")


def _changes(changes: Sequence[Change]) -> list[str]:
    if not changes:
        return []
    rows = [
        (escape(c.host), escape(c.what), escape(short_hash(c.before)), escape(short_hash(c.after)), proof(c.evidence))
        for c in changes
    ]
    return ["**Changed on the hosts** (computed from before and after)", "",
            *table(("host", "what", "before", "after", "proof"), rows)]  # fmt: skip


def short_hash(text: str) -> str:
    return text[:15] + "…" if text.startswith("sha256:") else text


def _undo(report: StatusReport) -> list[str]:
    parts = [
        f"**Undo** {code(report.undo)}" if report.undo else "",
        f"stop only: {code(report.stop)}" if report.stop else "",
        f"**Go on** {code(report.resume)}" if report.resume else "",
    ]
    line = " · ".join(part for part in parts if part)
    return [line, ""] if line else []


def _footer(report: StatusReport) -> str:
    used = report.usage
    tokens = used.tokens.get("in")
    spent = f", {number(tokens)} + {number(used.tokens.get('out'))} tokens" if tokens is not None else ""
    chosen = f" · calls chosen by {escape(report.model)}" if report.model else ""
    mark = "SIMULATED · " if report.simulated else ""
    return (
        f"{mark}run {code(report.run)} · {escape(report.runbook)} · {used.calls} calls, {used.turns} turns{spent}, "
        f"{used.wall_s:.0f} s{chosen} · `eN` is event N: {code('opsagent show ' + report.run)}"
    )
