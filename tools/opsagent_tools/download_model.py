"""The tool `download_model`: a repository of the hub into a folder of the host, watched by bytes, checked by hashes.

huggingface_hub does not notice a stalled transfer and starts a killed file from its beginning; it takes a body of the right
length for the right body. So each attempt is a supervised job under a deadline of bytes over time, finished files are kept,
leftovers are removed, and at the end every file is hashed.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import asdict

from pydantic import BaseModel, Field

from opsagent_tools import jobs, probes
from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.fetching import Fetch, Listed, Plan, Way, fetch_all, seen
from opsagent_tools.host import Host, argv
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

HUB = "https://huggingface.co"
ROOM = 1.05
"""Free space that is asked for, as a multiple of what is still to come."""
HASH_PATIENCE_S = 7200.0


class DownloadModelArgs(Args):
    repo: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)?$", description="Repository on the hub: `owner/name`.")
    path: str = Field(pattern=r"^/.+", description="Folder of the model on the host, absolute.")
    revision: str = Field(default="main", description="Branch, tag or commit; it is pinned to the commit found.")
    python: str = Field(default="python3", description="Interpreter of an environment with huggingface_hub.")
    env: dict[str, str] = Field(default={}, description="HF_TOKEN, HF_ENDPOINT, proxies; kept out of argv and logs.")
    stall_s: float = Field(default=120, gt=0, description="Seconds without a new byte after which a transfer is cut.")
    attempts: int = Field(default=6, ge=1, le=20, description="Transfers in a row that may fail.")
    exclude: list[str] = Field(default=[], description="Patterns of files that are left out, e.g. `*.gguf`.")
    verify: bool = Field(default=True, description="Hash every file at the end (about a minute for 50 GiB).")


class Attempt(BaseModel):
    """One transfer. `bytes` is what was there after it."""

    way: Way
    ended: str
    """`done`, `stalled`, `failed`, `stopped`."""
    bytes: int
    seconds: float
    words: str = ""


class DownloadModelResult(Result):
    repo: str
    path: str
    commit: str
    complete: bool
    """Every file is there with its size, and, when asked for, its hash."""
    verified: bool
    created: bool
    """False: the folder had files before."""
    files: int
    bytes: int
    attempts: list[Attempt] = []
    stalls: int = 0
    refetched: list[str] = []
    """Files that were there with a wrong hash or size and were fetched again."""
    bad: list[str] = []
    seconds: float = 0.0
    words: str = ""
    unit: str = ""
    log: str = ""

    @property
    def failed(self) -> bool:
        return not self.complete


def run(host: Host, args: DownloadModelArgs, ctx: Context | None = None) -> DownloadModelResult:
    """Fetch what is missing. An incomplete model is a result (`complete: false`) with its cause.

    Raises InputError for a repository that is not there, ToolFailed when the disk is too small or `hf` is missing.
    """
    ctx = ctx or Context()
    began = ctx.clock.now()
    ctx.secrets(args.env["HF_TOKEN"]) if args.env.get("HF_TOKEN") else None
    ctx.progress(Progress(f"asking the hub for {args.repo}"))
    plan, cause, words = _plan(host, args, ctx)
    if plan is None:
        return DownloadModelResult(
            repo=args.repo, path=args.path, commit="", complete=False, verified=False, created=False, files=0, bytes=0,
            cause=cause, words=words, summary=f"{args.repo}: {words}"[:300],
        )  # fmt: skip
    before = seen(host, plan)
    _room(host, args, plan, before.bytes, before.free)
    fetch = Fetch(host, ctx, plan, _hf(host, args), dict(args.env), args.stall_s, args.attempts)
    return _fetched(fetch, args, began, created=not before.sizes)


def _plan(host: Host, args: DownloadModelArgs, ctx: Context) -> tuple[Plan | None, str | None, str]:
    """What the hub has; asked again while it is busy. (None, cause, words) when it does not let us."""
    endpoint = args.env.get("HF_ENDPOINT", HUB)
    wanted = {"op": "plan", "repo": args.repo, "revision": args.revision, "endpoint": endpoint}
    words = ""
    for number in range(4):
        got = probes.ask(host, "download", wanted, stdin=args.env.get("HF_TOKEN", ""), env=_proxies(args.env))
        error = got["error"]
        if error is None:
            files = [Listed(**one) for one in got["files"] if not _excluded(one["name"], args.exclude)]
            return Plan(args.repo, args.path, str(got["commit"]), tuple(files)), None, ""
        words, status = str(error["words"]), int(error["status"])
        if status in (401, 403):
            cause = "hf-access-not-granted" if args.env.get("HF_TOKEN") else "hf-auth-missing"
            return None, cause, words
        if status == 404:
            raise InputError(f"the hub has no {args.repo}: {words}", hint="check owner, name and revision")
        if number < 3:
            wait = float(error["retry_after"] or 10 * 2**number)
            ctx.progress(Progress(f"the hub answers {status or 'nothing'}; again in {wait:.0f} s"))
            ctx.clock.sleep(wait)
    return None, "hf-download-stalled", words


def _proxies(env: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key.lower() in ("http_proxy", "https_proxy", "no_proxy")}


def _excluded(name: str, patterns: list[str]) -> bool:
    import fnmatch

    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _room(host: Host, args: DownloadModelArgs, plan: Plan, have: int, free: int) -> None:
    missing = max(0, plan.total - have)
    if missing * ROOM > free:
        words = f"{missing / 2**30:.1f} GiB are still to come, {free / 2**30:.1f} GiB are free at {args.path}"
        raise ToolFailed(words, where=host.name, hint="make room, or name a folder on another disk")


def _hf(host: Host, args: DownloadModelArgs) -> str:
    """The `hf` of the environment, else the one on PATH."""
    beside = posixpath.join(posixpath.dirname(args.python), "hf")
    for name in [beside, "hf"] if args.python.startswith("/") else ["hf"]:
        if argv(host, name, "version", timeout_s=60).ok:
            return name
    hint = "install_env brings it; or name the interpreter of an environment that has huggingface_hub"
    raise ToolFailed("there is no `hf` (huggingface_hub)", where=host.name, hint=hint)


def _fetched(fetch: Fetch, args: DownloadModelArgs, began: float, *, created: bool) -> DownloadModelResult:
    """Transfer, hash, transfer again what is wrong, once."""
    ctx, plan = fetch.ctx, fetch.plan
    cause, words = fetch_all(fetch, [])
    bad: list[str] = []
    refetched: list[str] = []
    if cause is None and args.verify:
        bad = _verify(fetch, plan.files)
        if bad:
            refetched = list(bad)
            probes.ask(fetch.host, "download", {"op": "clean", "path": args.path, "names": bad})
            cause, words = fetch_all(fetch, bad)
            bad = _verify(fetch, [f for f in plan.files if f.name in refetched]) if cause is None else bad
    now = seen(fetch.host, plan)
    short = [f.name for f in plan.files if now.sizes.get(f.name) != f.size]
    complete = cause is None and not bad and not short
    if not complete and cause is None:
        cause, words = "checkpoint-shard-corrupt", f"{(bad or short)[0]} is not as the hub says"
    stalls = sum(one.ended == "stalled" for one in fetch.tries)
    seconds = ctx.clock.now() - began
    return DownloadModelResult(
        repo=args.repo, path=args.path, commit=plan.commit, complete=complete, verified=complete and args.verify,
        created=created, files=len(plan.files), bytes=now.bytes,
        attempts=[Attempt(**asdict(one)) for one in fetch.tries], stalls=stalls, refetched=refetched, bad=bad or short,
        seconds=round(seconds, 1), words=words, unit=fetch.unit, log=fetch.log, cause=cause,
        summary=_summary(args, plan, complete, stalls, seconds, words),
    )  # fmt: skip


def _verify(fetch: Fetch, files: tuple[Listed, ...] | list[Listed]) -> list[str]:
    """Names of the files that are not as the hub says; hashed on the host, as a job."""
    wanted = {"op": "verify", "path": fetch.plan.path, "files": [asdict(one) for one in files]}
    name = fetch.next_name("hash")
    command = ("python3", "-c", probes.script("download"), json.dumps(wanted))
    job = jobs.start(fetch.host, jobs.JobSpec(name, command, f"/var/log/opsagent/{name}.log"), fetch.ctx)

    def each(_seen: jobs.JobStatus) -> None:
        lines = [line for line in jobs.tail(fetch.host, job.log, 500).splitlines() if line.startswith('{"at"')]
        if lines:
            at = json.loads(lines[-1])
            fetch.ctx.progress(Progress(f"hashing {at['at']}", at["done"] / 2**30, at["total"] / 2**30, "GiB"))

    end = jobs.wait(fetch.host, job, fetch.ctx, timeout_s=HASH_PATIENCE_S, each=each)
    last = jobs.tail(fetch.host, job.log, 1 << 16).strip().splitlines()
    if end.exit_code != 0 or not last:
        raise ToolFailed(
            f"hashing did not end well (exit {end.exit_code})", where=fetch.host.name, hint=f"see {job.log}"
        )
    return [str(one["name"]) for one in json.loads(last[-1])["bad"]]


def _summary(args: DownloadModelArgs, plan: Plan, complete: bool, stalls: int, seconds: float, words: str) -> str:
    if not complete:
        return f"{args.repo} is not complete: {words}"[:300]
    times = f", {stalls} stall{'s' if stalls != 1 else ''} cut" if stalls else ""
    proof = "every hash right" if args.verify else "sizes right"
    return (
        f"{args.repo}: {len(plan.files)} files, {plan.total / 2**30:.2f} GiB in {seconds / 60:.0f} min{times}; {proof}"
    )


TOOL = Tool(
    name="download_model",
    description=(
        "Fetch a model repository of the hub into a folder of the host. Watched by bytes over time: a stalled transfer is "
        "cut and resumed, then tried over plain HTTP; finished files are kept; in the end every file is hashed and a wrong "
        "one fetched again. What is already there and right is not fetched."
    ),
    args=DownloadModelArgs,
    result=DownloadModelResult,
    run=run,
    tier="R1",
    recovery="idempotent",
)
