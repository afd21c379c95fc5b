"""The way from a log to a diagnosis: scan, evaluate, choose, and say it."""

from __future__ import annotations

from collections.abc import Iterable

from opsagent_tools.sglang.diagnosis.evaluate import Candidate, candidates, choose
from opsagent_tools.sglang.diagnosis.fix import Hints, fix_for
from opsagent_tools.sglang.diagnosis.hang import stalled
from opsagent_tools.sglang.diagnosis.model import Diagnosis, Evidence, Link, Need
from opsagent_tools.sglang.diagnosis.scan import Launch, Scan, scan
from opsagent_tools.sglang.diagnosis.signature import Knowledge, knowledge
from opsagent_tools.sglang.log.lines import Source

_CONFIDENCE = {3: 0.95, 2: 0.8, 1: 0.5}


def diagnose(
    lines: Source | Iterable[str], *, version: str | None = None, gpu: str | None = None, learned: str = ""
) -> Diagnosis:
    """Name the cause of a failed or sick server, or say that it is healthy, or that the log does not tell.

    `lines`: the whole log as bytes, chunks of it, or its lines. `version`: of the SGLang that wrote it, when known.
    `gpu`: the card's name, for the remedy. `learned`: TOML of further signatures. Reads once, in bounded memory.
    """
    facts = knowledge(learned)
    result = scan(lines, facts)
    found = sorted([*candidates(result), *stalled(result)], key=lambda c: c.order)
    chosen = choose(result, found)
    if chosen:
        return _failed(result, facts, chosen, version, gpu)
    return _clean(result, version)


def _failed(result: Scan, data: Knowledge, chosen: list[Candidate], version: str | None, gpu: str | None) -> Diagnosis:
    first = chosen[0]
    launch = result.launches[first.hit.launch]
    sglang = version or launch.reader.facts.sglang
    cause = data.causes[first.cause]
    others = [c.cause for c in chosen[1:] if c.signature.tier >= 2]
    confidence = first.signature.confidence or _CONFIDENCE[first.signature.tier]
    return Diagnosis(
        verdict="failed",
        cause=first.cause,
        confidence=round(confidence - (0.1 if others and first.signature.tier < 3 else 0.0), 2),
        evidence=_evidence(first),
        also=[*others, *dict.fromkeys(n.slug for n in result.noise)],
        fix=fix_for(cause, Hints(first.hit, launch, sglang, gpu)),
        phase=first.hit.phase,
        sglang=sglang,
        needs=[Need(argv=list(argv), why=why) for argv, why in cause.needs],
        summary=cause.means,
        chain=_chain(result, first),
        noise=result.noise,
        limits=launch.reader.facts.limits,
        launches=len(result.launches),
    )


def _evidence(candidate: Candidate) -> list[Evidence]:
    hits = sorted(
        {h.line: h for h in (candidate.hit, *candidate.support)}.values(), key=lambda h: h.line != candidate.hit.line
    )
    return [Evidence(line=h.line, text=h.quote) for h in hits[:6] if h.quote]


def _chain(result: Scan, candidate: Candidate) -> list[Link]:
    block = result.blocks.get(candidate.hit.block)
    raised = block.raised[:8] if block else []
    return [Link(line=r.line, type=r.type, message=r.message[:300]) for r in raised]


def _clean(result: Scan, version: str | None) -> Diagnosis:
    """No signature holds: healthy if it came up and nothing is unexplained, else unknown."""
    launches = sorted(result.launches.values(), key=lambda n: n.last_line)
    last = launches[-1] if launches else Launch(0)
    up = [n for n in launches if n.up]
    common = {
        "sglang": version or last.reader.facts.sglang,
        "also": list(dict.fromkeys(n.slug for n in result.noise)),
        "noise": result.noise,
        "launches": max(1, len(launches)),
    }
    batches = result.skimmed.batch_line
    if batches and not up and not any(f > batches for n in launches for f in n.fatal_lines):
        up = [last]  # requests are being worked on, and nothing fatal came after
    if up:
        facts = up[-1].reader.facts
        return Diagnosis(
            verdict="healthy", confidence=0.95, phase="serving", limits=facts.limits, summary=_healthy(up[-1]), **common
        )
    phase = last.reader.facts.phase
    trouble = [Evidence(line=t.line, text=t.quote) for t in result.trouble if t.quote]
    strange = not last.reader.facts.phases and not last.reader.facts.args
    if trouble:
        what = f"Nothing that we know explains the error; the server did not come up (phase '{phase}')."
    elif strange:
        what = f"None of these {result.skimmed.lines} lines is known as one of SGLang's: is it the server's log?"
    else:
        what = (
            f"The log stops in the phase '{phase}' at line {result.skimmed.lines} without an error, "
            "before the server was ready."
        )
    return Diagnosis(
        verdict="unknown",
        confidence=0.3 if trouble or strange else 0.9,
        phase=phase,
        evidence=[*trouble[:3], *trouble[-3:]] if len(trouble) > 6 else trouble,
        limits=last.reader.facts.limits,
        summary=what,
        needs=_next_look(bool(trouble)),
        ruled_out=_ruled_out(result, last),
        **common,
    )


def _healthy(launch: Launch) -> str:
    facts = launch.reader.facts
    limits = facts.limits
    if limits.max_total_num_tokens is None:
        return "The server came up and serves."
    return (
        f"The server came up: {limits.max_total_num_tokens} tokens, {limits.max_running_requests} requests at once, "
        f"context {limits.context_len}."
    )


def _next_look(trouble: bool) -> list[Need]:
    needs = [
        Need(argv=["tail", "-n", "40", "LOG"], why="whether the log has grown since"),
        Need(argv=["ps", "-eo", "pid,stat,etime,args"], why="whether the server's processes live, and in which state"),
    ]
    if trouble:
        needs.append(Need(argv=["dmesg", "-T"], why="kernel messages of the same minute: OOM killer, Xid"))
    return needs


def _ruled_out(result: Scan, launch: Launch) -> list[str]:
    said = []
    if not launch.fatal_lines:
        said.append("no process of the server reported a crash")
    if not any("memory" in t.quote.lower() for t in result.trouble):
        said.append("no out-of-memory error")
    if launch.reader.facts.phase not in ("arguments", "processes"):
        said.append("the arguments were accepted")
    return said
