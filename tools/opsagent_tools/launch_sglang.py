"""The tool `launch_sglang`: start a server under supervision and follow it until it is ready, has failed, or is stuck."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Literal

from pydantic import Field

from opsagent_tools import jobs
from opsagent_tools.arg_types import Flags, ModelRef, model_path
from opsagent_tools.errors import InputError
from opsagent_tools.host import Host
from opsagent_tools.launch.command import EVERYWHERE, ServerCommand, build
from opsagent_tools.launch.compare import Compared, compare
from opsagent_tools.launch.describe import card_names, model_id, parallel, precision
from opsagent_tools.launch.follow import End, Log, follow
from opsagent_tools.launch.memory import wait_back
from opsagent_tools.logfile import read_on
from opsagent_tools.machine import network
from opsagent_tools.machine.gpus import used_mib
from opsagent_tools.machine.processes import masked, tell_secrets
from opsagent_tools.sglang.diagnosis import Diagnosis, Evidence, Fix, Noise, diagnose
from opsagent_tools.sglang.log import Facts, Limits, MemoryLine, Phase, facts
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

BLOB_BYTES = 32 << 20


class LaunchSglangArgs(Args):
    model: ModelRef = Field(description="The model's directory on the host, or the result of read_config.")
    flags: Flags = Field(default=[], description="SGLang's own flags, as a list of words or one string.")
    port: int = Field(default=30000, ge=1, le=65535, description="Port to serve on (a --port among flags wins).")
    bind: str = Field(default="", description="Address to listen on, e.g. 0.0.0.0; SGLang's default is 127.0.0.1.")
    python: str = Field(default="python3", description="The serving environment's interpreter, absolute path.")
    env: dict[str, str] = Field(default={}, description="Environment variables of the server (values are kept secret).")
    load_format: str = Field(default="auto", description="`dummy` fills the weights with random numbers.")
    log: str = Field(default="", pattern=r"^(/.*)?$", description="Absolute path of its log; made if left out.")
    cwd: str = Field(default="", pattern=r"^(/.*)?$", description="Folder to start in.")
    prediction: dict[str, Any] | None = Field(
        default=None, description="Result of estimate_vram, or its proposal: the log is compared with it."
    )
    preflight: bool = Field(default=True, description="Judge the flags again right before the start.")
    wait_s: float = Field(
        default=5400, gt=0, description="Seconds to follow it; then it goes on, with state `starting`."
    )


class LaunchSglangResult(Result):
    state: Literal["ready", "failed", "stuck", "starting"]
    words: str = ""
    """Why it is not ready: SGLang's own words, or ours."""
    limits: Limits
    """What the server can do, as its log says."""
    url: str
    """Base URL of the OpenAI-compatible API, as others reach it."""
    local_url: str
    """The same from the host itself, without /v1."""
    unit: str
    backend: Literal["systemd", "group", ""]
    pid: int | None
    started: str = ""
    """Start time of the pid in clock ticks since boot."""
    log: str
    port: int
    bind: str
    argv: list[str]
    """The exact command, secrets masked."""
    model_path: str
    model_id: str = ""
    """The name under which the API serves it."""
    api_key: bool = False
    """Whether clients must send a key."""
    dtype: str = ""
    """Precision: `bfloat16`, `fp8` …"""
    tp: int = 1
    gpus: list[str] = []
    """Names of the cards that it runs on."""
    sglang: str | None = None
    random_seed: int | None = None
    exit_code: int | None = None
    weights_loaded: bool
    """Whether weights were read (a refusal before that costs seconds, one after it minutes)."""
    ready_s: float | None = None
    """From the start until it was ready."""
    phases: list[Phase] = []
    phase_seconds: dict[str, float] = {}
    """Duration of each phase, for the next launch on this host."""
    memory: list[MemoryLine] = []
    compared: list[Compared] = []
    evidence: list[Evidence] = []
    fix: Fix = Fix()
    noise: list[Noise] = []
    """Lines that look like errors and are none."""
    gpu_memory_back: bool | None = None
    """After a failure: whether the cards have their memory back. Null: not asked, or no nvidia-smi."""
    used_mib_before: dict[int, int] | None = None
    """Used memory by card before the start, MiB: what it should be again after a stop."""
    preflight: dict[str, Any] | None = None
    blob: str = ""
    """sha256 of the whole log."""

    @property
    def failed(self) -> bool:
        return self.state != "ready"


def run(host: Host, args: LaunchSglangArgs, ctx: Context | None = None) -> LaunchSglangResult:
    """Start and follow. A server that does not come up is a result; nothing of it is left running then.

    Raises InputError for arguments that make no command, ToolFailed when it cannot be executed, OutcomeUnknown when the
    link stays down (the server goes on: the same call can be settled by `probe`).
    """
    ctx = ctx or Context()
    command = _command(args)
    tell_secrets(command.argv, command.env, ctx.secrets)
    refused, checked = _refused(host, args, command, ctx)
    if refused is not None:
        return refused
    before = used_mib(host)
    name = jobs.job_name(ctx)
    spec = jobs.JobSpec(name, command.argv, args.log or default_log(name), command.env, args.cwd)
    job = jobs.start(host, spec, ctx)
    return _followed(host, job, args, command, ctx, before, checked)


def default_log(name: str) -> str:
    return f"/var/log/sglang/{name}.log"


def _command(args: LaunchSglangArgs) -> ServerCommand:
    try:
        path = model_path(args.model)
    except ValueError as error:
        raise InputError(str(error)) from error
    return build(args.python, path, list(args.flags), port=args.port, bind=args.bind, load_format=args.load_format,
                 env=args.env)  # fmt: skip


def _refused(
    host: Host, args: LaunchSglangArgs, command: ServerCommand, ctx: Context
) -> tuple[LaunchSglangResult | None, dict[str, Any] | None]:
    """The result when we do not even start: the port is taken, or the target's own SGLang refuses the flags."""
    taken = network.listeners(host, command.port)
    if taken:
        one = taken[0]
        words = f"port {command.port} belongs to {one.process or 'another process'} (pid {one.pid})"
        return _not_started(args, command, "port-in-use", words, None), None
    if not args.preflight or importlib.util.find_spec("opsagent_tools.preflight") is None:
        return None, None
    ctx.progress(Progress("preflight: the target's own SGLang judges the flags", expected_s=20.0))
    module = importlib.import_module("opsagent_tools.preflight")
    wanted = {"model": args.model, "flags": args.flags, "port": command.port, "python": args.python, "env": args.env}
    if "load_format" in module.TOOL.args.model_fields:
        wanted["load_format"] = args.load_format
    wanted["elsewhere"] = False  # what does not judge here does not serve here either
    checked = module.run(host, module.TOOL.args(**wanted), ctx)
    kept = checked.model_dump(mode="json", include={"accepted", "cause", "words", "port_free", "gpus_free"})
    if not checked.accepted:
        return _not_started(args, command, checked.cause, checked.words, kept), kept
    return None, kept


def _not_started(
    args: LaunchSglangArgs, command: ServerCommand, cause: str | None, words: str, checked: dict[str, Any] | None
) -> LaunchSglangResult:
    return LaunchSglangResult(
        state="failed", cause=cause, words=words, limits=Limits(), url="", local_url=command.local_url, unit="", backend="",
        pid=None, log="", port=command.port, bind=command.bind, argv=masked(command.argv), model_path=model_path(args.model),
        weights_loaded=False, preflight=checked, summary=f"not started: {words}"[:300],
    )  # fmt: skip


def _followed(
    host: Host, job: jobs.Job, args: LaunchSglangArgs, command: ServerCommand, ctx: Context,
    before: dict[int, int] | None, checked: dict[str, Any] | None,
) -> LaunchSglangResult:  # fmt: skip
    log = Log()
    end = follow(host, job, command, ctx, log, wait_s=args.wait_s)
    back: bool | None = None
    if end.state not in ("ready", "starting"):
        jobs.stop(host, job, ctx, grace_s=15.0)
        log.add(*read_on(host, job.log, log.at))
        back, _now = wait_back(host, before, ctx)
    whole = jobs.read_log(host, job.log, limit=BLOB_BYTES)[0] if log.cut else log.data
    found = _diagnosed(log.data)
    result = _result(host, job, args, command, end, found, facts(log.data))
    tp = parallel(end.facts, list(args.flags))
    names = card_names(host, command.env.get("CUDA_VISIBLE_DEVICES", ""), tp)
    changes = {
        "tp": tp, "gpus": names, "api_key": bool(command.api_key),
        "dtype": precision(args.model, list(args.flags), log.data), "model_id": model_id(args.model, end.facts, end.info),
        "used_mib_before": before, "gpu_memory_back": back, "preflight": checked, "blob": ctx.keep(f"{job.name}.log", whole),
        "compared": compare(args.prediction, end.facts) if args.prediction else [],
    }  # fmt: skip
    return result.model_copy(update=changes)


def _result(
    host: Host, job: jobs.Job, args: LaunchSglangArgs, command: ServerCommand, end: End, found: Diagnosis, known: Facts
) -> LaunchSglangResult:
    state, cause, words = _verdict(end, found)
    address = network.address_of(host) if command.bind in EVERYWHERE else command.bind
    seed = known.args.get("random_seed")
    return LaunchSglangResult(
        state=state, cause=cause, words=words, limits=known.limits, url=f"http://{address}:{command.port}/v1",
        local_url=command.local_url, unit=job.name, backend=job.backend, pid=end.seen.pid or job.pid,
        started=end.seen.started or job.started, log=job.log, port=command.port, bind=command.bind,
        argv=masked(command.argv), model_path=model_path(args.model),
        sglang=known.sglang or end.info.get("version"), random_seed=seed if isinstance(seed, int) else None,
        exit_code=end.seen.exit_code, weights_loaded=any(m.at == "weights end" for m in known.memory),
        ready_s=round(end.waited_s, 1) if state == "ready" else None, phases=known.phases,
        phase_seconds={p.name: p.duration_s for p in known.phases if p.duration_s is not None}, memory=known.memory,
        evidence=found.evidence, fix=found.fix, noise=found.noise, summary=_summary(state, words, known, end),
    )  # fmt: skip


def _diagnosed(log: bytes) -> Diagnosis:
    """The diagnosis of the log. A fault of ours in it must not cost the operator a server that took minutes to load."""
    try:
        return diagnose(log)
    except Exception as error:
        return Diagnosis(verdict="unknown", summary=f"the diagnosis failed: {type(error).__name__}: {error}"[:300])


def _verdict(end: End, found: Diagnosis) -> tuple[Literal["ready", "failed", "stuck", "starting"], str | None, str]:
    """State, cause and words. The log's diagnosis decides, except where we know better than the log."""
    if end.state == "ready":
        return "ready", None, ""
    if end.state == "starting":
        return "starting", None, end.words
    if end.state in ("not-ours", "port-taken"):
        return "failed", "port-in-use", end.words
    named = found.cause if found.verdict == "failed" else None
    if end.state == "stuck":
        return "stuck", named or "scheduler-hang", end.words
    code = end.seen.exit_code
    how = "ended with exit code " + str(code) if code is not None else "ended, and nobody saw how"
    own = found.evidence[0].text if found.verdict == "failed" and found.evidence else ""
    return "failed", named, own or f"the server {how} in phase {end.facts.phase}"


def _summary(state: str, words: str, known: Facts, end: End) -> str:
    if state == "ready":
        limits = known.limits
        return (
            f"ready after {end.waited_s:.0f} s: {limits.max_total_num_tokens} tokens, "
            f"{limits.max_running_requests} requests at once, context {limits.context_len}"
        )
    return f"{state} in phase {end.facts.phase}: {words}"[:300]


def probe(host: Host, args: LaunchSglangArgs, ctx: Context) -> LaunchSglangResult | None:
    """After an unknown outcome: find the server that this call started and go on following it; None: it never started."""
    command = _command(args)
    tell_secrets(command.argv, command.env, ctx.secrets)
    name = jobs.job_name(ctx)
    job = jobs.find(host, name, args.log or default_log(name))
    return _followed(host, job, args, command, ctx, None, None) if job else None


TOOL = Tool(
    name="launch_sglang",
    description=(
        "Start an SGLang server under supervision (it survives a lost link), follow its log until it is ready, failed or "
        "stuck, and prove that the server on the port is this one. Returns state, limits (max_total_num_tokens, "
        "max_running_requests, context_len), unit, pid, log, url; on failure the cause and SGLang's words, and nothing is "
        "left running. Use estimate_vram and preflight first: a failed launch costs minutes."
    ),
    args=LaunchSglangArgs,
    result=LaunchSglangResult,
    run=run,
    tier="R1",
    recovery="reconcilable",
    probe=probe,
)
