"""The report from the journal: a fold, so that it can be built again from any run folder and cannot say more than it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsagent.journal.fold import fold
from opsagent.journal.state import CallState, RunState
from opsagent.protocols import Event
from opsagent.report.changes import changed
from opsagent.report.evidence import Evidence, proof
from opsagent.report.explain import behaviours, trade_offs, why
from opsagent.report.incidents import incidents
from opsagent.report.model import (
    STATUS_BY_CODE,
    Claim,
    Deployment,
    Endpoint,
    Limit,
    Line,
    Noise,
    Probe,
    StatusReport,
    Usage,
)  # fmt: skip
from opsagent.report.pictures import budgets, frontier, wish
from opsagent_tools.arg_types import option

LIMITS = ("max_running_requests", "max_total_num_tokens", "context_len", "max_prompt_tokens")


def rebuild(events: Sequence[Event]) -> StatusReport:
    """The report that a journal makes, up to and with its run.finished: `verify` compares with it."""
    *before, end = events
    failed = end.data.get("failed")
    return build(
        fold(before), before, exit_code=int(end.data.get("exit_code") or 0),
        failed=Claim.model_validate(failed) if failed else None,
    )  # fmt: skip


def build(state: RunState, events: Sequence[Event], *, exit_code: int, failed: Claim | None = None) -> StatusReport:
    """The status report of a run as far as it got."""
    seen = Evidence.of(state, events)
    started = state.started
    launched, served = seen.last("launch_sglang", ok=True), _taken_over(seen)
    launch = None if _ended(seen, launched) else launched  # what was stopped again has no address and no limits
    if launched is not None and launch is None and not _asked_since(seen):
        served = {}
    run = str(started.get("run", state.run))
    limits = _limits(seen, launch) if launch is launched else []
    options = trade_offs(seen, launch) if launch is launched else []
    return StatusReport(
        status=STATUS_BY_CODE[exit_code],
        exit_code=exit_code,
        simulated=bool(started.get("simulated")),
        lab=str(started.get("lab") or ""),
        run=run,
        runbook=str((started.get("runbook") or {}).get("name", "")),
        model=str(started.get("model") or ""),
        headline=_headline(seen, launched, exit_code, ended=launch is None),
        endpoint=_endpoint(seen, launch, served),
        deployment=_deployment(seen, launch),
        limits=limits,
        why=why(seen),
        memory=_memory(seen),
        budget=budgets(seen, launched),
        frontier=frontier(seen, limits, options),
        wish=wish(seen),
        predicted_logged=_lines(launched),
        behaviours=behaviours(seen),
        trade_offs=options,
        verification=_verification(seen),
        noise=_noise(seen),
        incidents=incidents(seen),
        weight_loads=weight_loads(seen),
        changes=changed(seen),
        undo=f"opsagent rollback {run}" if _did_something(seen) else "",
        stop=f"opsagent stop {run}" if launch is not None else "",
        resume=f"opsagent resume {run}" if exit_code in (3, 4, 5, 7, 8, 130) else "",
        open=_open(seen, launch),
        failed=failed,
        usage=_usage(state),
    )


def _result(call: CallState | None) -> dict[str, Any]:
    return call.result or {} if call is not None else {}


def _taken_over(seen: Evidence) -> dict[str, Any]:
    """A running server that somebody else started, from the newest inventory that shows one."""
    for call in reversed(seen.calls.get("inspect_host", [])):
        servers = _result(call).get("servers") or []
        if servers:
            return dict(servers[0])
    return {}


def _ended(seen: Evidence, launch: CallState | None) -> bool:
    """Whether the run stopped the server of this launch again."""
    unit = _result(launch).get("unit")
    return bool(unit) and any(
        call.ok and (unit in ((call.call.args.get("server") or {}).get("unit"), call.call.args.get("unit")))
        for call in seen.calls.get("stop_server", [])
    )


def _asked_since(seen: Evidence) -> bool:
    """Whether a server was asked after the last one was stopped: it is another one then."""
    calls = list(seen.state.calls)
    asked, stopped = seen.last("curl_test"), seen.last("stop_server")
    return bool(asked and stopped and calls.index(asked.call.id) > calls.index(stopped.call.id))


def _headline(seen: Evidence, launch: CallState | None, exit_code: int, *, ended: bool = False) -> str:
    if launch is not None:
        model = _model_name(launch.call.args.get("model"))
        if ended:
            return f"{model} was launched on {launch.call.host} and stopped again"
        verb = "is serving" if exit_code == 0 else "was launched"
        return f"{model} {verb} on {launch.call.host}"
    return str((seen.state.started.get("runbook") or {}).get("title") or "Run")


def _model_name(model: Any) -> str:
    path = model.get("path", "") if isinstance(model, dict) else str(model or "")
    return path.rstrip("/").rsplit("/", 1)[-1] or "the model"


def _endpoint(seen: Evidence, launch: CallState | None, served: dict[str, Any]) -> Endpoint | None:
    probe = _result(seen.last("curl_test"))
    if launch is None and not (served and probe):
        return None
    base = _result(launch) or served
    url = str(base.get("public_url") or base.get("url") or "")
    if not url and base.get("port"):
        url = f"http://127.0.0.1:{base['port']}/v1"  # as the host itself reaches it: more is not known of another's server
    url = url if not url or url.rstrip("/").endswith("/v1") else url.rstrip("/") + "/v1"
    facts = probe.get("facts") or {}
    model_id = str(probe.get("model_id") or facts.get("model_id") or base.get("model_id") or "")
    return Endpoint(
        url=url,
        model_id=model_id,
        api_key="required" if base.get("api_key") else "none",
        bind=str(base.get("bind") or ""),
    )


def _deployment(seen: Evidence, launch: CallState | None) -> Deployment | None:
    if launch is None:
        return None
    result, args = _result(launch), launch.call.args
    argv = [str(word) for word in result.get("argv") or []]
    plan = _result(seen.last("estimate_vram"))
    return Deployment(
        host=launch.call.host,
        model=_model_name(args.get("model")),
        dtype=str(result.get("dtype") or plan.get("dtype") or ""),
        tp=int(result.get("tp") or option(argv, "--tp-size", "--tp", "--tensor-parallel-size") or 1),
        gpus=[str(name) for name in result.get("gpus") or []],
        sglang=str(result.get("sglang") or plan.get("sglang") or ""),
        speculation=_speculation(argv),
        unit=str(result.get("unit") or ""),
        argv=argv,
        env={str(k): str(v) for k, v in (args.get("env") or {}).items()},
        log=str(result.get("log") or ""),
    )


def _speculation(argv: Sequence[str]) -> str:
    name = option(argv, "--speculative-algorithm", "--speculative-algo")
    numbers = [
        option(argv, flag)
        for flag in ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    ]
    return f"{name} {'/'.join(value or '-' for value in numbers)}" if name else ""


def plan_of(seen: Evidence, launch: CallState | None) -> tuple[dict[str, Any], list[str]]:
    """The prediction that the launch followed: the plan's proposal, else its asked flags; with its proof."""
    call = seen.last("estimate_vram")
    plan = _result(call)
    proposal = plan.get("proposal") or {}
    if proposal.get("limits") and launch is not None:
        return {**proposal, "intervals": {"max_total_num_tokens": proposal.get("interval")}}, proof(call)
    return plan, proof(call)


def _limits(seen: Evidence, launch: CallState | None) -> list[Limit]:
    asked = seen.last("curl_test")
    answered = _result(asked).get("facts") or {}
    logged = dict(
        _result(launch).get("limits")
        or (_result(seen.last("tail_log")).get("facts") or {}).get("limits")
        or {name: answered.get(name) for name in LIMITS}
    )
    if not any(logged.values()):
        return []
    logged["max_prompt_tokens"] = answered.get("max_req_input_len")
    plan, said = plan_of(seen, launch)
    predicted, intervals = plan.get("limits") or {}, plan.get("intervals") or {}
    evidence = proof(launch) or proof(seen.last("tail_log")) or proof(asked)
    flags = [str(word) for word in plan.get("flags") or (plan.get("asked") or {}).get("flags") or []]
    return [
        Limit(
            name=name,
            value=logged[name],
            predicted=predicted.get(name),
            interval=intervals.get(name),
            bound_by=_bound_by(name, plan, flags),
            evidence=(proof(asked) if name == "max_prompt_tokens" else evidence)
            + (said if predicted.get(name) is not None else []),
        )
        for name in LIMITS
        if logged.get(name) is not None
    ]


def _bound_by(name: str, plan: dict[str, Any], flags: Sequence[str]) -> str:
    if name == "max_running_requests" and option(flags, "--max-running-requests"):
        return f"--max-running-requests {option(flags, '--max-running-requests')}"
    if name in ("context_len", "max_prompt_tokens") and option(flags, "--context-length"):
        less = " less 6" if name == "max_prompt_tokens" else ""
        return f"--context-length {option(flags, '--context-length')}{less}"
    if name == "context_len":
        return "the model's own length"
    if name == "max_prompt_tokens":
        return "the smaller of context length and tokens in all, less 6"
    constraint = str(plan.get("binding_constraint") or "")
    if name == "max_total_num_tokens" and (not constraint or constraint.startswith("--max-running-requests")):
        return "KV pool, after weights and recurrent state"
    return constraint


def _memory(seen: Evidence) -> dict[str, float]:
    plan = _result(seen.last("estimate_vram"))
    found = (plan.get("proposal") or {}).get("per_gpu_gib") or plan.get("per_gpu_gib") or {}
    return {str(k): float(v) for k, v in found.items() if isinstance(v, (int, float))}


def _lines(launch: CallState | None) -> list[Line]:
    compared = _result(launch).get("compared") or []
    return [
        Line(
            name=str(row.get("name")), predicted=row.get("predicted"), logged=row.get("logged"), evidence=proof(launch)
        )
        for row in compared
        if isinstance(row, dict) and row.get("unit") == "GiB"
    ]


def _verification(seen: Evidence) -> list[Probe]:
    call = seen.last("curl_test")
    probes = _result(call).get("probes") or []
    return [
        Probe(
            probe=str(p.get("probe") or p.get("name")),
            ok=p.get("ok"),
            detail=str(p.get("detail") or ""),
            evidence=proof(call),
        )
        for p in probes
    ]


def _noise(seen: Evidence) -> list[Noise]:
    """Noise lines, one for each reason: the first line stands for those that are harmless for the same reason."""
    found: dict[str, list[Noise]] = {}
    for tool in ("launch_sglang", "tail_log"):
        for call in seen.calls.get(tool, []):
            diagnosis = _result(call).get("diagnosis") or {}
            for item in _result(call).get("noise") or diagnosis.get("noise") or []:
                text, reason = str(item.get("text") or ""), str(item.get("reason") or "")
                same = found.setdefault(reason, [])
                if all(noise.text != text for noise in same):
                    same.append(Noise(text=text, why_harmless=reason, evidence=proof(call)))
    return [_first(same) for same in found.values()]


def _first(same: list[Noise]) -> Noise:
    """The line that names a missing library says most; the number of the others is added."""
    best = next((noise for noise in same if ".so" in noise.text or "Error" in noise.text), same[0])
    more = f" ({len(same) - 1} more like it)" if len(same) > 1 else ""
    return best.model_copy(update={"why_harmless": best.why_harmless + more})


def weight_loads(seen: Evidence) -> int:
    """Launches in which the engine began to read weights."""
    loads = 0
    for call in seen.state.calls.values():
        if call.call.tool != "launch_sglang" or "call.started" not in call.events:
            continue
        loads += bool((call.result or {}).get("weights_loaded"))
    return loads


def _did_something(seen: Evidence) -> bool:
    return any(
        call.verdict.get("tier") not in (None, "R0") and call.status == "finished" for call in seen.state.calls.values()
    )


def _open(seen: Evidence, launch: CallState | None) -> list[str]:
    found: list[str] = []
    result = _result(launch)
    if launch is not None and not result.get("api_key") and result.get("bind") in ("0.0.0.0", "::"):
        found.append("The server listens on all interfaces without a key: bind it to one address, or set an API key?")
    if launch is not None and result.get("unit"):
        found.append("It does not start again by itself after a reboot: enable the unit?")
    for call in seen.state.calls.values():
        if call.status == "refused" and call.call.tool == "stop_server" and call.call.role == "old":
            found.append(
                f"The old server on {call.call.host} is still up: switch clients, then run runbooks/decommission.md."
            )
        elif call.status == "waiting":
            found.append(f"{call.call.tool} ({call.call.id}) waits: opsagent approve {seen.state.run} {call.call.id}")
    for event in seen.events:
        if event.type == "note" and isinstance(event.data.get("finish"), dict):
            found += [str(text) for text in event.data["finish"].get("open") or []]
    said = [
        event.data["open"] for event in seen.events if event.type == "note" and isinstance(event.data.get("open"), list)
    ]
    found += [str(text) for text in (said[-1] if said else [])]  # the last: a rollback makes earlier ones untrue
    return list(dict.fromkeys(found))


def _usage(state: RunState) -> Usage:
    used = state.usage
    reads = state.started.get("model") not in (None, "", "autopilot")
    tokens = {"in": used.tokens_in if reads else None, "out": used.tokens_out if reads else None}
    return Usage(
        turns=used.turns,
        calls=used.calls,
        tokens=tokens,
        wall_s=round(used.wall_s, 1),
        working_s=round(used.working_s, 1),
    )
