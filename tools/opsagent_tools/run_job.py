"""The tool `run_job`: a long command under supervision. A lost link, or our own end, does not end it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from opsagent_tools import jobs
from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host
from opsagent_tools.ssh_exec import Argv
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

TAIL_BYTES = 6000
BLOB_BYTES = 32 << 20


class RunJobArgs(Args):
    argv: Argv | None = Field(default=None, description="The command as a list of words; not a shell.")
    job: str = Field(
        default="", description="Instead of argv: the name of a job that runs already, to go on waiting for it."
    )
    env: dict[str, str] = Field(default={}, description="Its environment variables (kept out of argv and of logs).")
    cwd: str = Field(default="", pattern=r"^(/.*)?$", description="Folder to start in; absolute.")
    log: str = Field(
        default="", pattern=r"^(/.*)?$", description="Absolute path of its log on the host; made if left out."
    )
    wait_s: float = Field(
        default=3600, ge=0, description="Seconds to wait for its end; then it goes on and the result says `running`."
    )
    ok_codes: list[int] = Field(default=[0], description="Exit codes that are not a failure.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.argv is None) == (not self.job):
            raise ValueError("give either argv (to start) or job (to go on waiting)")
        return self


class RunJobResult(Result):
    state: Literal["running", "stopping", "exited", "lost", "gone"]
    exit_code: int | None
    """None while it runs, or when nobody saw it."""
    unit: str
    """Its name: pass it as `job` to wait on, or to stop_server to end it."""
    backend: Literal["systemd", "group"]
    pid: int | None
    started: str = ""
    log: str
    tail: str
    """The end of its log."""
    blob: str = ""
    """sha256 of its log, when it has ended."""
    ok: bool | None
    """None while it runs."""

    @property
    def failed(self) -> bool:
        return self.ok is False


def default_log(name: str) -> str:
    return f"/var/log/opsagent/{name}.log"


def run(host: Host, args: RunJobArgs, ctx: Context | None = None) -> RunJobResult:
    """Start (or find) the job and wait. Raises ToolFailed when it cannot be executed or is not there."""
    ctx = ctx or Context()
    if args.argv is None:
        job = jobs.find(host, args.job, args.log or default_log(args.job))
        if job is None:
            raise ToolFailed(f"no job {args.job!r}", where=host.name, hint="after a reboot its trace is gone")
    else:
        name = jobs.job_name(ctx)
        spec = jobs.JobSpec(name, tuple(args.argv), args.log or default_log(name), args.env, args.cwd)
        job = jobs.start(host, spec, ctx)
    return _wait(host, job, args, ctx)


def _wait(host: Host, job: jobs.Job, args: RunJobArgs, ctx: Context) -> RunJobResult:
    began = ctx.clock.now()

    def each(_seen: jobs.JobStatus) -> None:
        ctx.progress(Progress(f"{job.name}: {_last_line(host, job.log)}", ctx.clock.now() - began, None, "s"))

    seen = jobs.wait(host, job, ctx, timeout_s=args.wait_s, each=each)
    return _result(host, job, seen, args, ctx)


def _result(host: Host, job: jobs.Job, seen: jobs.JobStatus, args: RunJobArgs, ctx: Context) -> RunJobResult:
    tail = jobs.tail(host, job.log, TAIL_BYTES)
    ok = None
    if seen.ended:
        ok = seen.state == "exited" and seen.exit_code in args.ok_codes
    words = {
        "exited": f"{job.name} ended with exit {seen.exit_code}",
        "lost": f"{job.name} has ended, but nobody saw its exit code",
        "gone": f"{job.name} has left no trace (a reboot?)",
    }.get(seen.state, f"{job.name} is still running; wait on with job={job.name!r}")
    blob = ctx.keep(f"{job.name}.log", jobs.read_log(host, job.log, limit=BLOB_BYTES)[0]) if seen.ended else ""
    return RunJobResult(
        state=seen.state, exit_code=seen.exit_code, unit=job.name, backend=job.backend, pid=seen.pid or job.pid,
        started=seen.started or job.started, log=job.log, tail=tail, blob=blob, ok=ok, summary=words,
    )  # fmt: skip


def _last_line(host: Host, log: str) -> str:
    lines = [part for part in jobs.tail(host, log, 400).replace("\r", "\n").splitlines() if part.strip()]
    return lines[-1][:160] if lines else "no output yet"


def probe(host: Host, args: RunJobArgs, ctx: Context) -> RunJobResult | None:
    """After an unknown outcome: whether the job of this call was started."""
    job = jobs.find(host, args.job or jobs.job_name(ctx), args.log or default_log(args.job or jobs.job_name(ctx)))
    return _wait(host, job, args, ctx) if job else None


TOOL = Tool(
    name="run_job",
    description=(
        "Run a long command (an installer, rsync, a build) under supervision on the host: it survives a lost link, its log "
        "and exit code stay on the host. Waits up to wait_s, then returns state `running` and a unit; call again with "
        "job=<unit> to go on waiting. argv is a list of words, not a shell."
    ),
    args=RunJobArgs,
    result=RunJobResult,
    run=run,
    tier="R0",
    recovery="reconcilable",
    probe=probe,
    polls=True,
)
