"""Following a start: read the log as it grows, know the phase, and decide: ready, failed, or stuck."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from opsagent_tools import jobs
from opsagent_tools.errors import HostUnreachable, OutcomeUnknown
from opsagent_tools.host import Host, argv
from opsagent_tools.launch.command import ServerCommand
from opsagent_tools.launch.identity import Identity, identify
from opsagent_tools.logfile import Place, read_on
from opsagent_tools.machine.processes import read_processes
from opsagent_tools.sglang.log import Facts, facts
from opsagent_tools.tool import Context, Progress

EXPECTED_S = {
    "arguments": 20.0, "processes": 20.0, "distributed": 5.0, "weights": 120.0, "pools": 5.0, "backends": 5.0,
    "graphs": 40.0, "warm-up": 60.0,
}  # fmt: skip
"""Until this host has a history: from starts of 0.5.11 on H200s; weights from a disk of about 0.5 GB/s."""
SILENCE_S = 300.0
"""Without a new line for so long (or five times what the phase ever took), and nothing at work: stuck."""
COMPILERS = ("nvcc", "cicc", "ptxas", "ninja", "cc1plus", "c++")
BIND_FAILED = b"error while attempting to bind on address"
SHARDS = re.compile(r"\b(\d+)/(\d+)\b")
METER = re.compile(r"\d+%\s*(?:\||Completed)|\d+(?:\.\d+)?\s?(?:it/s|s/it)\b")
"""A line that is itself a progress bar (tqdm's `11/15 [00:32<00:11, 2.94s/it]`)."""
DECISIVE = re.compile(
    r"avail[ _]mem=|mem usage=|max_total_num_tokens=|Cache is allocated|ready to roll"
    r"|^\w*(?:Error|Exception)\b|\] \w*Error\b"
)
"""What a person would look for in the log of a start (templates of 0.5.9 to 0.5.23)."""
KEEP = 8 << 20
LINK_S = 600.0
"""A lost link is waited for so long; the server goes on meanwhile."""

T = TypeVar("T")


@dataclass
class Log:
    """What was read of the log so far. A start writes far less than `KEEP`; of more, the head and the tail stay."""

    data: bytes = b""
    at: Place = field(default_factory=Place)
    cut: bool = False
    """The middle was left out: the whole is in the file only."""

    def add(self, new: bytes, at: Place) -> None:
        self.at = at
        self.data += new
        if len(self.data) > KEEP:
            self.cut = True
            self.data = self.data[: KEEP // 2] + b"\n" + self.data[-KEEP // 4 :]

    @property
    def last_line(self) -> str:
        return self._last(lambda line: bool(line)) or "no output yet"

    @property
    def last_words(self) -> str:
        """The last line that decides something (memory, limits, an error), else the last that is no progress bar."""
        return self._last(lambda line: bool(DECISIVE.search(line))) or self._last(
            lambda line: bool(line) and not METER.search(line)
        )

    def _last(self, wanted: Callable[[str], bool]) -> str:
        lines = self.data[-16384:].decode("utf-8", "replace").replace("\r", "\n").splitlines()
        return next((line.strip()[:160] for line in reversed(lines) if wanted(line.strip())), "")


@dataclass(frozen=True)
class End:
    """How following ended. `starting`: the operator stopped waiting, or `wait_s` is over; the server goes on."""

    state: Literal["ready", "ended", "not-ours", "port-taken", "stuck", "starting"]
    seen: jobs.JobStatus
    facts: Facts
    words: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    waited_s: float = 0.0


def follow(host: Host, job: jobs.Job, command: ServerCommand, ctx: Context, log: Log, *, wait_s: float) -> End:
    """Until the server is ready and ours, or is not going to be. Survives a lost link: reads are simply repeated."""
    began = grew = phase_began = ctx.clock.now()
    phase, known = "", facts(log.data)
    while True:
        new = patiently(lambda: read_on(host, job.log, log.at), ctx, job)
        seen = patiently(lambda: jobs.status(host, job), ctx, job)
        if seen.ended and not new[0]:
            rest = patiently(lambda: read_on(host, job.log, log.at), ctx, job)
            log.add(*rest)
            return End("ended", seen, facts(log.data), waited_s=ctx.clock.now() - began)
        now = ctx.clock.now()
        if new[0]:
            grew = now
            log.add(*new)
            known = facts(log.data)
        if known.phase != phase:
            phase, phase_began = known.phase, now
        _tell(ctx, known.phase, now - phase_began, log)
        end = _decide(host, job, command, ctx, log, seen, known, silent_s=now - grew)
        if end is None and (now - began >= wait_s or ctx.stopped()):
            end = End("starting", seen, known, f"still in phase {known.phase}")
        if end is not None:
            return End(end.state, end.seen, end.facts, end.words, end.info, now - began)
        ctx.clock.sleep(1.0 if new[0] else 2.0)


def _decide(
    host: Host, job: jobs.Job, command: ServerCommand, ctx: Context, log: Log, seen: jobs.JobStatus, known: Facts,
    *, silent_s: float,
) -> End | None:  # fmt: skip
    if BIND_FAILED in log.data:
        return End("port-taken", seen, known, f"port {command.port} was taken when the server wanted to listen on it")
    if known.ready_line is not None:
        who: Identity = patiently(lambda: identify(host, job, seen, command, known.args.get("random_seed")), ctx, job)
        if who.ours:
            return End("ready", seen, known, who.words, who.info)
        if who.ours is False:
            return End("not-ours", seen, known, f'the log says "ready", but {who.words}')
    limit = max(SILENCE_S, 5 * expected(ctx, known.phase))
    if silent_s >= limit and not patiently(lambda: at_work(host, seen, ctx), ctx, job):
        words = f"nothing was logged for {silent_s:.0f} s in phase {known.phase}, and nothing is being read or compiled"
        return End("stuck", seen, known, words)
    return None


def expected(ctx: Context, phase: str) -> float:
    """Seconds that this phase took on this host before, else a guess."""
    history = ctx.history.get("phase_seconds", {})
    known = history.get(phase) if isinstance(history, dict) else None
    return float(known) if isinstance(known, int | float) else EXPECTED_S.get(phase, 30.0)


def _tell(ctx: Context, phase: str, seconds: float, log: Log) -> None:
    shards = SHARDS.search(log.last_line) if phase == "weights" else None
    text = f"{phase}: {log.last_words or log.last_line}"
    usual = expected(ctx, phase) if phase in EXPECTED_S else None
    if shards:
        ctx.progress(Progress(text, float(shards[1]), float(shards[2]), "shards", usual))
        return
    ctx.progress(Progress(text, round(seconds, 1), None, "s", usual))


def at_work(host: Host, seen: jobs.JobStatus, ctx: Context) -> bool:
    """Whether a silent start is doing something: compiling kernels, or reading weights."""
    processes = read_processes(host)
    if any(p.argv and p.argv[0].rpartition("/")[2] in COMPILERS for p in processes):
        return True
    pids = set(seen.members) | {p.pid for p in processes if p.parent in seen.members or p.parent == seen.pid}
    before = _bytes_read(host, pids)
    ctx.clock.sleep(5.0)
    return _bytes_read(host, pids) - before > 1 << 20


def _bytes_read(host: Host, pids: set[int]) -> int:
    total = 0
    for pid in sorted(pids):
        done = argv(host, "cat", f"/proc/{pid}/io", timeout_s=20)
        values = dict(line.split(": ") for line in done.stdout.splitlines() if ": " in line)
        total += int(values.get("rchar", 0)) if done.ok else 0
    return total


def patiently(read: Callable[[], T], ctx: Context, job: jobs.Job) -> T:
    """A read that is repeated while the link is down. Raises OutcomeUnknown when it stays down."""
    began = ctx.clock.now()
    while True:
        try:
            return read()
        except (HostUnreachable, OutcomeUnknown) as error:
            if ctx.clock.now() - began >= LINK_S or ctx.stopped():
                hint = f"{job.name} goes on there; resume finds it again"
                raise OutcomeUnknown(f"the link is lost: {error.what}", where=error.where, hint=hint) from error
            ctx.progress(Progress("the link is lost; the server goes on, trying to reach it again"))
            ctx.clock.sleep(5.0)
