"""The tool `stop_server`: end one server, all of its processes, and see that the GPUs have their memory back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, model_validator

from opsagent_tools import jobs
from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host, argv
from opsagent_tools.launch.memory import wait_back
from opsagent_tools.machine import network
from opsagent_tools.machine.gpus import parse_apps, used_mib
from opsagent_tools.machine.processes import Process, masked, read_processes, tree, unit_of
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

KILL_PATIENCE_S = 15.0


class StopServerArgs(Args):
    server: dict[str, Any] | None = Field(default=None, description="Result of launch_sglang: the server to stop.")
    unit: str = Field(default="", pattern=r"^[A-Za-z0-9_.@:-]*$", description="Or the name of its job or systemd unit.")
    pid: int | None = Field(default=None, gt=1, description="Or its main process, when somebody else started it.")
    started: str = Field(
        default="", description="Start time of that pid as inspect_host gave it; checked before anything."
    )
    port: int | None = Field(default=None, ge=1, le=65535, description="Or the port on which it listens.")
    grace_s: float = Field(
        default=90, ge=0, le=900, description="Seconds to finish running requests before it is killed."
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(bool(given) for given in (self.server, self.unit, self.pid, self.port)) != 1:
            raise ValueError("give exactly one of server, unit, pid, port")
        return self


class StopServerResult(Result):
    stopped: bool
    """True when none of its processes lives (also when it had ended before)."""
    was_running: bool
    exit_code: int | None = None
    pids: list[int] = []
    """Processes that were ended."""
    left: list[int] = []
    """Processes of it that still live."""
    gpu_memory_back: bool | None
    """Whether the cards that it used have their memory back; null: no nvidia-smi to ask."""
    used_mib_before: dict[int, int] = {}
    used_mib_after: dict[int, int] = {}
    """Used memory by card, MiB."""

    @property
    def failed(self) -> bool:
        return not self.stopped or self.gpu_memory_back is False


@dataclass(frozen=True)
class _Cards:
    """The cards before the stop: used memory by card, who held how much, and what was used before the server started."""

    used: dict[int, int]
    holders: dict[int, dict[int, int]]
    """Card, pid, MiB. In a container nvidia-smi may show none of them."""
    base: dict[int, int]

    def names(self, pids: set[int]) -> bool:
        return any(pid in pids for held in self.holders.values() for pid in held)

    def wanted(self, mine: set[int]) -> dict[int, int] | None:
        """What each card may still use when `mine` are gone; None when there is no nvidia-smi."""
        others = {c: sum(mib for pid, mib in self.holders.get(c, {}).items() if pid not in mine) for c in self.used}
        return {card: max(others[card], self.base.get(card, 0)) for card in self.used} or None


def _cards(host: Host, args: StopServerArgs) -> _Cards:
    used = used_mib(host) or {}
    base = {int(card): int(mib) for card, mib in ((args.server or {}).get("used_mib_before") or {}).items()}
    if not used:
        return _Cards({}, {}, base)
    apps = argv(host, "nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
                "--format=csv,noheader,nounits", timeout_s=60)  # fmt: skip
    names = argv(host, "nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader", timeout_s=60)
    pairs = [line.split(",") for line in names.stdout.splitlines() if line.count(",") == 1]
    numbers = {uuid.strip(): int(index) for index, uuid in pairs}
    found = parse_apps(apps.stdout) if apps.ok else {}
    holders = {numbers[u]: {h.pid: h.used_mib or 0 for h in held} for u, held in found.items() if u in numbers}
    return _Cards(used, holders, base)


def run(host: Host, args: StopServerArgs, ctx: Context | None = None) -> StopServerResult:
    """Stop it. Raises ToolFailed when what is there is not what was named (another process has the pid)."""
    ctx = ctx or Context()
    unit = args.unit or str((args.server or {}).get("unit") or "")
    if unit:
        job = jobs.find(host, unit.removesuffix(".service"))
        if job is not None:
            return _stop_job(host, job, args, ctx)
        if not (args.server or {}).get("pid"):
            return _nothing(f"no job or unit {unit!r} is there any more")
    pid, started = _main_pid(host, args)
    if pid is None:
        return _nothing("nobody listens on that port" if args.port else "it does not run any more")
    return _stop_pid(host, pid, started, args, ctx)


def _stop_job(host: Host, job: jobs.Job, args: StopServerArgs, ctx: Context) -> StopServerResult:
    before, processes = _cards(host, args), read_processes(host)
    seen = jobs.status(host, job)
    mine = set(seen.members) | (set(tree(processes, seen.pid)) if seen.pid and not seen.ended else set())
    was_running = not seen.ended or bool(seen.members)
    ctx.progress(Progress(f"stopping {job.name}"))
    after = jobs.stop(host, job, ctx, grace_s=args.grace_s)
    left = _end_orphans(host, [p for p in processes if p.pid in mine], ctx)
    return _result(host, ctx, before, mine, [*left, *after.members], was_running, after.exit_code, job.name)


def _main_pid(host: Host, args: StopServerArgs) -> tuple[int | None, str]:
    """The process that is meant; None when it is gone."""
    if args.port:
        pids = {one.pid for one in network.listeners(host, args.port)}
        if None in pids:
            raise ToolFailed(
                "the host does not say whose port that is", where=host.name, hint="look from its parent host"
            )
        if len(pids) > 1:
            raise ToolFailed(f"port {args.port} belongs to several processes", where=host.name, hint="give a pid")
        found = next(iter(pids), None)
        return found, start_time(host, found) if found else ""
    server = args.server or {}
    pid = args.pid or server.get("pid")
    started = args.started or str(server.get("started") or "")
    now = start_time(host, int(pid)) if pid else ""
    if not pid or not now:
        return None, ""
    if started and started != now:
        return None, ""  # the number was given to another process since
    return int(pid), now


def start_time(host: Host, pid: int) -> str:
    """Field 22 of /proc/PID/stat, clock ticks since boot; '' when there is no such process."""
    done = argv(host, "cat", f"/proc/{pid}/stat", timeout_s=20)
    fields = done.stdout.rpartition(")")[2].split()
    return fields[19] if done.ok and len(fields) > 19 else ""


def _stop_pid(host: Host, pid: int, started: str, args: StopServerArgs, ctx: Context) -> StopServerResult:
    """A server that is none of our jobs: by its unit where it has one (else it would be started again), else by its tree."""
    before, processes = _cards(host, args), read_processes(host)
    known = {p.pid: p for p in processes}
    mine = [known[one] for one in tree(processes, pid) if one in known]
    cgroup = argv(host, "cat", f"/proc/{pid}/cgroup", timeout_s=20)
    unit, _container = unit_of(cgroup.stdout) if cgroup.ok else ("", None)
    if unit.endswith(".service") and not unit.startswith(("ssh", "user@", "pve-container")):
        ctx.progress(Progress(f"stopping {unit}"))
        done = argv(host, "systemctl", "stop", unit, timeout_s=args.grace_s + 120)
        if not done.ok:
            raise ToolFailed(f"systemctl stop {unit}: {done.stderr.strip()[:300]}", where=host.name)
    else:
        _signal(host, [p for p in mine if p.pid == pid], "TERM")
        _gone(host, mine, ctx, args.grace_s)
    left = _end_orphans(host, mine, ctx)
    return _result(host, ctx, before, {p.pid for p in mine}, left, True, None, f"pid {pid}")


def _end_orphans(host: Host, mine: list[Process], ctx: Context) -> list[int]:
    """End what outlived its parent: only processes that we saw in the tree before, and that are still the same ones."""
    for sig, patience in (("TERM", 5.0), ("KILL", KILL_PATIENCE_S)):
        left = _living(host, mine)
        if not left:
            return []
        _signal(host, left, sig)
        _gone(host, mine, ctx, patience)
    return [p.pid for p in _living(host, mine)]


def _signal(host: Host, processes: list[Process], sig: str) -> None:
    if processes:
        argv(host, "kill", f"-{sig}", *(str(p.pid) for p in processes), timeout_s=20)


def _living(host: Host, mine: list[Process]) -> list[Process]:
    """Those that still live under the same words or session; zombies hold nothing and cannot be killed."""
    now = {p.pid: p for p in read_processes(host)}
    return [p for p in mine if p.pid in now and now[p.pid].state[0] not in "ZX" and now[p.pid].session == p.session]


def _gone(host: Host, mine: list[Process], ctx: Context, seconds: float) -> None:
    deadline = ctx.clock.now() + seconds
    while _living(host, mine) and ctx.clock.now() < deadline:
        ctx.clock.sleep(1.0)


def _result(
    host: Host, ctx: Context, before: _Cards, mine: set[int], left: list[int], was_running: bool, exit_code: int | None,
    name: str,
) -> StopServerResult:  # fmt: skip
    still = sorted(set(left))
    back, after = wait_back(host, before.wanted(mine), ctx)
    words = f"{name} stopped" if not still else f"{name}: {len(still)} processes still live"
    if back is False and not before.names(mine):
        back, words = None, f"{words}; GPU memory is held by processes that this host does not show"
    elif back is False:
        words += ", but the GPU memory is not back"
    return StopServerResult(
        stopped=not still, was_running=was_running, exit_code=exit_code, pids=sorted(mine - set(still)), left=still,
        gpu_memory_back=back, used_mib_before=before.used, used_mib_after=after, summary=words,
        cause="gpu-memory-occupied" if back is False else None,
    )  # fmt: skip


def _nothing(words: str) -> StopServerResult:
    return StopServerResult(stopped=True, was_running=False, gpu_memory_back=None, summary=words)


def describe(host: Host, pid: int) -> str:
    """The masked command of a pid, for whoever approves a stop. A read."""
    found = [p for p in read_processes(host) if p.pid == pid]
    return " ".join(masked(found[0].argv)) if found else "(no such process)"


TOOL = Tool(
    name="stop_server",
    description=(
        "Stop one server and all of its processes: the one that launch_sglang started (server=<its result>), a unit, a pid "
        "or a port. Lets it finish its requests for grace_s, then kills it, and waits until the GPU memory is back. Only "
        "what this run started or the runbook names."
    ),
    args=StopServerArgs,
    result=StopServerResult,
    run=run,
    tier="R1",
    recovery="idempotent",
)
