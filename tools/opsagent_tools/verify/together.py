"""N requests at once: sent by one process on the host, so that no link decides how many really run together."""

from __future__ import annotations

import json
import re
from typing import Any

from opsagent_tools import probes
from opsagent_tools.errors import ToolFailed
from opsagent_tools.sglang.diagnosis.degenerate import why_degenerate
from opsagent_tools.verify.answer import Answer, whole
from opsagent_tools.verify.api import Reply
from opsagent_tools.verify.probes import NO_THINKING, Bench, Found

CAP = 256
"""Most requests that are sent together, whatever the server can run: a test is no load test."""
COUNT = 40
"""Numbers that each request counts: long enough that all of them run at the same time."""
PATIENCE_S = 600.0


def at_once(bench: Bench, wanted: int | None) -> Found:
    """N requests together, each with an answer of its own: all must be answered, and rightly.

    N is what is wished for, else what the server says that it can run, at most `CAP`. How many ran together is what
    `/v1/loads` said meanwhile (0.5.9 and newer); a server that queues some answers all the same.
    """
    limit = bench.about.max_running_requests
    n = min(wanted or limit or 2, CAP)
    try:
        got = _ask(bench, n)
    except ToolFailed as error:
        return Found("at_once", None, f"could not be asked: {error.what}")
    answers = [_answer(row) for row in got["answers"]]
    seconds = float(got["seconds"])
    bad = [a.words for a in answers if not a.ok]
    right = sum(_counted(first, a) for first, a in zip(_firsts(n), answers, strict=True))
    garbage = next((why for a in answers if a.ok and (why := why_degenerate(a.text, prompt=_question(1)))), "")
    why = "" if right == n else garbage or "wrong"
    made = sum(a.completion_tokens or 0 for a in answers)
    facts: dict[str, Any] = {"answered_at_once": n - len(bad)}
    if made and seconds > 0:
        facts["tokens_per_s_at_once"] = round(made / seconds, 1)
    if got["peak"] is not None:
        facts["seen_running_at_once"] = got["peak"]
    asked = wanted or limit
    note = f" of {asked} (more are not tried)" if asked and asked > n else ""
    ran = f", {got['peak']} seen running together" if got["peak"] is not None else ""
    if bad:
        return Found("at_once", False, f"{len(bad)} of {n} failed: {bad[0]}", why, seconds, facts)
    if limit is not None and wanted is not None and limit < wanted:
        return Found("at_once", False, f"only {limit} run at once, {wanted} were asked for", why, seconds, facts)
    return Found("at_once", right == n, f"{n}{note} at once, {right} right{ran}", why, seconds, facts)


def _ask(bench: Bench, n: int) -> dict[str, Any]:
    common = {"model": bench.model, "temperature": 0, "max_tokens": 8 * COUNT, **NO_THINKING}
    bodies = [{**common, "messages": [{"role": "user", "content": _question(first)}]} for first in _firsts(n)]
    wanted = {"url": bench.api.base, "path": "/v1/chat/completions", "timeout": PATIENCE_S}
    stdin = json.dumps({"key": bench.api.api_key, "bodies": bodies}, ensure_ascii=True)
    return probes.ask(bench.api.host, "together", wanted, stdin=stdin, timeout_s=PATIENCE_S + 60, keep=16 << 20)


def _firsts(n: int) -> list[int]:
    """Where each request begins to count: no two have the same answer, so one answered from a cache would be seen."""
    return [100 + 10 * number for number in range(n)]


def _question(first: int) -> str:
    return f"List the numbers from {first} to {first + COUNT - 1}, separated by commas. Write nothing else."


def _answer(row: dict[str, Any]) -> Answer:
    return whole(Reply(int(row["status"]), str(row["body"]), float(row["seconds"]), float(row["seconds"])))


def _counted(first: int, answer: Answer) -> bool:
    """Whether the numbers stand there in order, at the end of whatever else was written."""
    numbers = [int(word) for word in re.findall(r"\d{1,9}", answer.text)]
    return numbers[-COUNT:] == list(range(first, first + COUNT))
