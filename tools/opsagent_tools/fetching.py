"""Transfers of a model under a deadline of bytes over time: one supervised `hf download` after another until all is
there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from opsagent_tools import jobs, probes
from opsagent_tools.host import Host
from opsagent_tools.sglang.diagnosis import diagnose
from opsagent_tools.tool import Context, Progress

Way = Literal["xet", "http"]
POLL_S = 10.0
CALM = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "30"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of the repository."""

    name: str
    size: int
    sha256: str | None
    blob: str


@dataclass(frozen=True)
class Plan:
    """What is to be in the folder in the end."""

    repo: str
    path: str
    commit: str
    files: tuple[Listed, ...]

    @property
    def total(self) -> int:
        return sum(one.size for one in self.files)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is there now; `bytes` counts unfinished files too."""

    bytes: int
    sizes: dict[str, int]
    unfinished: int
    free: int


@dataclass(frozen=True)
class Try:
    way: Way
    ended: str
    bytes: int
    seconds: float
    words: str = ""


@dataclass
class Fetch:
    """The transfers of one call so far."""

    host: Host
    ctx: Context
    plan: Plan
    hf: str
    env: dict[str, str]
    stall_s: float
    attempts: int
    tries: list[Try] = field(default_factory=list)
    jobs_made: dict[str, int] = field(default_factory=dict)
    unit: str = ""
    log: str = ""

    def next_name(self, kind: str) -> str:
        """Jobs of this call are numbered by what they do; a repeated call begins again and finds the ones that run.

        (Without the kind a repeated call that needs fewer transfers would take an old transfer for its hashing.)
        """
        self.jobs_made[kind] = self.jobs_made.get(kind, 0) + 1
        return f"{jobs.job_name(self.ctx)}.{kind}{self.jobs_made[kind]}"


def seen(host: Host, plan: Plan) -> Seen:
    names = [one.name for one in plan.files]
    return Seen(**probes.ask(host, "download", {"op": "seen", "path": plan.path, "names": names}))


def fetch_all(fetch: Fetch, names: list[str]) -> tuple[str | None, str]:
    """Until every file (or every named one) has its size. (None, '') then, else cause and words of the last failure."""
    wanted = [one for one in fetch.plan.files if not names or one.name in names]
    way: Way = "http" if fetch.env.get("HF_HUB_DISABLE_XET") else "xet"
    failures, cause, words = 0, "", ""
    while failures < fetch.attempts:
        there = seen(fetch.host, fetch.plan)
        if all(there.sizes.get(one.name) == one.size for one in wanted):
            return None, ""
        one = _transfer(fetch, names, way)
        fetch.tries.append(one)
        if one.ended == "stopped":
            return "hf-download-stalled", "stopped by the operator"
        after = seen(fetch.host, fetch.plan)
        gained = sum(after.sizes.values()) > sum(there.sizes.values())
        failures = 0 if gained else failures + 1
        cause, words = _why(one)
        if cause in ("hf-auth-missing", "hf-access-not-granted", "disk-full"):
            return cause, words
        if one.ended != "done":
            probes.ask(fetch.host, "download", {"op": "clean", "path": fetch.plan.path, "names": []})
            way = "http" if one.ended == "stalled" and way == "xet" else way
            if one.ended == "failed":
                fetch.ctx.clock.sleep(min(300.0, 15.0 * 2**failures))
    return cause or "hf-download-stalled", words


def _why(one: Try) -> tuple[str, str]:
    if one.ended == "stalled":
        return "hf-download-stalled", one.words
    if one.ended == "failed":
        return diagnose(one.words.splitlines()).cause or "hf-download-stalled", one.words.strip().splitlines()[-1][:300]
    return "", ""


def _transfer(fetch: Fetch, names: list[str], way: Way) -> Try:
    """One `hf download`, cut when no byte comes for `stall_s`."""
    plan, ctx, name = fetch.plan, fetch.ctx, fetch.next_name("get")
    command = (fetch.hf, "download", plan.repo, *names, "--revision", plan.commit, "--local-dir", plan.path)
    env = {**CALM, **fetch.env, **({"HF_HUB_DISABLE_XET": "1"} if way == "http" else {})}
    job = jobs.start(fetch.host, jobs.JobSpec(name, command, f"/var/log/opsagent/{name}.log", env), ctx)
    fetch.unit, fetch.log = job.name, job.log
    began = last = ctx.clock.now()
    best, first = -1, -1
    while True:
        status, here = jobs.status(fetch.host, job), seen(fetch.host, plan)
        now = ctx.clock.now()
        first = here.bytes if first < 0 else first
        if here.bytes > best:
            best, last = here.bytes, now
        if status.ended:
            good = status.state == "exited" and status.exit_code == 0
            words = "" if good else jobs.tail(fetch.host, job.log, 2000)
            return Try(way, "done" if good else "failed", here.bytes, round(now - began, 1), words or _exit(status))
        rate = (here.bytes - first) / max(1.0, now - began) / 2**20
        ctx.progress(
            Progress(f"{plan.repo} over {way}, {rate:.0f} MiB/s", here.bytes / 2**30, plan.total / 2**30, "GiB")
        )
        if ctx.stopped() or now - last > fetch.stall_s:
            jobs.stop(fetch.host, job, ctx, grace_s=10.0)
            ended = "stopped" if ctx.stopped() else "stalled"
            words = f"no byte came for {now - last:.0f} s at {here.bytes / 1e9:.1f} GB over {way}"
            return Try(way, ended, here.bytes, round(now - began, 1), words)
        ctx.clock.sleep(POLL_S)


def _exit(status: jobs.JobStatus) -> str:
    how = status.state if status.exit_code is None else f"exit {status.exit_code}"
    return "" if status.exit_code == 0 else f"the download ended with {how}"
