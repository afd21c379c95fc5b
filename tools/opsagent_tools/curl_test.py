"""The tool `curl_test`: does a server answer, rightly, apart from its thoughts, at length, and to several at once?"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from opsagent_tools.host import Host
from opsagent_tools.tool import Args, Context, Progress, Result, Tool
from opsagent_tools.verify import probes
from opsagent_tools.verify.api import Api
from opsagent_tools.verify.probes import Bench, Found
from opsagent_tools.verify.server import About, look, metrics_of
from opsagent_tools.verify.together import at_once


class CurlTestArgs(Args):
    server: dict[str, Any] | None = Field(
        default=None, description="Result of launch_sglang, or an entry of inspect_host's servers."
    )
    port: int | None = Field(default=None, ge=1, le=65535, description="Port on the host, if there is no `server`.")
    url: str = Field(default="", description="Base URL as the host sees it, if neither is given.")
    model: str = Field(default="", description="Model name to ask for; left out: what /v1/models says.")
    api_key: str = Field(default="", description="Key of the API (kept secret).")
    concurrency: int | None = Field(default=None, ge=1, description="How many requests at once must be answered.")
    expect_degenerate: bool = Field(
        default=False, description="Random weights: garbage is expected, and only that it answers counts."
    )
    long_context: bool = Field(default=True, description="Also a prompt near the limit, and one over it.")
    bundle: bool = Field(
        default=False, description="A sick server: everything it says about itself, and two short questions."
    )
    wait_s: float = Field(default=600, gt=0, description="Seconds to wait for the first answer after a start.")
    up_s: float = Field(default=0, ge=0, description="Seconds to wait until it listens, when it is being started.")


class ProbeResult(BaseModel):
    probe: str
    ok: bool | None
    """None: does not apply to this server."""
    detail: str = ""
    degenerate: str = ""
    seconds: float = 0.0


class CurlTestResult(Result):
    ok: bool
    """Every probe that applies passed."""
    degenerate: bool
    """The answers are garbage (with `expect_degenerate` that is no failure)."""
    probes: list[ProbeResult]
    facts: dict[str, Any]
    """model_id, sglang, limits, first_answer_s, tokens_per_s, thinks_by_default, accept_length, random_seed …"""
    model_id: str = ""
    behaviours: list[str] = []
    """What a user of this server will notice."""
    bundle: dict[str, Any] | None = None

    @property
    def failed(self) -> bool:
        return not self.ok


def run(host: Host, args: CurlTestArgs, ctx: Context | None = None) -> CurlTestResult:
    ctx = ctx or Context()
    if args.api_key:
        ctx.secrets(args.api_key)
    api = Api(host, base_url(args), args.api_key)
    _wait_up(api, args.up_s, ctx)
    ctx.progress(Progress("health, models, server info"))
    about = look(api, thorough=True)
    found = [_health(about)]
    if about.health.status:
        bench = Bench(api, about, args.model or about.model_id or "default", args.wait_s)
        found += _ask(bench, args, ctx)
        about.metrics = {**about.metrics, **look_again(api)}
    return _result(args, about, found)


def _wait_up(api: Api, seconds: float, ctx: Context) -> None:
    """Until /health says 200, or the time is over: a unit that was started loads for minutes before it listens."""
    began = ctx.clock.now()
    while (waited := ctx.clock.now() - began) < seconds and not ctx.stopped() and not api.get("/health").ok:
        ctx.progress(Progress("waiting until it listens", round(waited), seconds, "s"))
        ctx.clock.sleep(5.0)


def base_url(args: CurlTestArgs) -> str:
    """Where the server is, seen from its host."""
    server = args.server or {}
    url = args.url or str(server.get("local_url") or "")
    if not url and (port := args.port or server.get("port")):
        url = f"http://127.0.0.1:{port}"
    url = url or str(server.get("url") or "") or "http://127.0.0.1:30000"
    return url.rstrip("/").removesuffix("/v1")


def _ask(bench: Bench, args: CurlTestArgs, ctx: Context) -> list[Found]:
    found: list[Found] = []
    todo = probes.QUICK if args.bundle else (*probes.QUICK, *probes.FULL)
    for number, probe in enumerate(todo):
        ctx.progress(Progress(probe.__name__.replace("_", " "), number, len(todo), "probes"))
        found.append(probe(bench))
        if number == 0 and found[0].detail.startswith("no answer"):
            return found
        if ctx.stopped():
            return found
    if not args.bundle:
        if args.long_context:
            ctx.progress(Progress("a long prompt, and one over the limit"))
            found += probes.long_prompt(bench)
        ctx.progress(Progress("several at once"))
        found.append(at_once(bench, args.concurrency))
    return found


def look_again(api: Api) -> dict[str, float]:
    """Metrics after the questions: the accept length of speculation needs some tokens."""
    reply = api.get("/metrics")
    return metrics_of(reply.body) if reply.ok else {}


def _health(about: About) -> Found:
    if about.health.status == 0:
        return Found("health", False, f"no HTTP answer: {about.health.body}")
    generate = about.health_generate
    detail = f"/health {about.health.status}" + (f", /health_generate {generate.status}" if generate else "")
    # Under long prefills a healthy server may answer 503 once: the questions that follow decide then.
    return Found("health", about.health.status == 200 or bool(generate and generate.status == 200), detail)


def _result(args: CurlTestArgs, about: About, found: list[Found]) -> CurlTestResult:
    facts = _facts(about)
    for one in found:
        facts.update(one.facts)
    garbage = [one for one in found if one.degenerate]
    degenerate = bool(garbage)
    shown = []
    for one in found:
        ok, detail = one.ok, one.detail
        content = one.probe in ("arithmetic", "prose", "at_once", "tool_call", "thinking", "streaming")
        if args.expect_degenerate and ok is False and content and "no answer" not in detail and "failed:" not in detail:
            ok, detail = True, f"{detail} (random weights: garbage is expected)"
        shown.append(
            ProbeResult(probe=one.probe, ok=ok, detail=detail, degenerate=one.degenerate, seconds=round(one.seconds, 3))
        )
    ok = all(p.ok is not False for p in shown)
    cause = "degenerate-output" if degenerate and not args.expect_degenerate else None
    return CurlTestResult(
        ok=ok, degenerate=degenerate, probes=shown, facts=facts, model_id=about.model_id, cause=cause,
        behaviours=_behaviours(facts, garbage, args), summary=_summary(ok, degenerate, shown, facts),
        bundle=_bundle(about) if args.bundle else None,
    )  # fmt: skip


def _facts(about: About) -> dict[str, Any]:
    info = about.info
    named = {
        "model_id": about.model_id, "sglang": info.get("version"), "model_path": info.get("model_path"),
        "random_seed": info.get("random_seed"), "tp_size": info.get("tp_size"), "context_len": about.context_len,
        "max_total_num_tokens": about.pool_tokens, "max_running_requests": about.max_running_requests,
        "max_req_input_len": info.get("max_req_input_len"), "speculative_algorithm": info.get("speculative_algorithm"),
        "accept_length": about.accept_length, "reasoning_parser": info.get("reasoning_parser"),
        "tool_call_parser": info.get("tool_call_parser"), "metrics": about.metrics_status == 200,
        "health": about.health.status,
    }  # fmt: skip
    return {k: v for k, v in named.items() if v is not None}


def _behaviours(facts: dict[str, Any], garbage: list[Found], args: CurlTestArgs) -> list[str]:
    said = []
    if garbage and args.expect_degenerate:
        said.append("Its answers are garbage, as they must be with random weights.")
    context, pool = facts.get("context_len"), facts.get("max_total_num_tokens")
    if isinstance(context, int) and isinstance(pool, int) and pool < context:
        said.append(f"No request can be longer than {pool} tokens, although the context is {context}.")
    if facts.get("max_running_requests") == 1:
        said.append("One request at a time: others wait.")
    if facts.get("speculative_algorithm") and facts.get("accept_length") is not None and facts["accept_length"] <= 1.01:
        said.append("Drafts are never accepted: speculation costs memory and gives nothing.")
    return said


def _summary(ok: bool, degenerate: bool, shown: list[ProbeResult], facts: dict[str, Any]) -> str:
    bad = [f"{p.probe}: {p.detail}" for p in shown if p.ok is False]
    passed = sum(p.ok is True for p in shown)
    if bad:
        return f"{len(bad)} of {len(shown)} probes failed; {bad[0]}"[:300]
    first = f", first answer after {facts['first_answer_s']:.1f} s" if facts.get("first_answer_s") else ""
    return f"{passed} probes passed{' (garbage, as expected)' if degenerate else ''}{first}"


def _bundle(about: About) -> dict[str, Any]:
    return {
        "health": about.health.status, "health_generate": about.health_generate.status if about.health_generate else None,
        "models": about.models, "model_info": about.model_info, "server_info": about.info, "loads": about.loads,
        "metrics": about.metrics,
    }  # fmt: skip


TOOL = Tool(
    name="curl_test",
    description=(
        "Ask a running server over HTTP from its own host: health, limits, a sum with a known answer, readable prose, "
        "thinking apart from the answer, a tool call, streaming, a prompt near the limit, one over it, N requests at once. "
        "Says when answers are degenerate (one token repeated, only '!', empty, loops). `bundle` looks at a sick server."
    ),
    args=CurlTestArgs,
    result=CurlTestResult,
    run=run,
)
