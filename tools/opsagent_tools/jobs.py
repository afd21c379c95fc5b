"""Long commands under supervision: a lost link kills nothing, the exit code stays on the host, stop ends the whole group.

With systemd as PID 1 (and root) a job is a transient unit, `systemd-run --unit NAME`, with RemainAfterExit so that its
exit code can be read later. Elsewhere `probes/job.py` starts it in a session of its own under a small supervisor. Both
append to one log file. Names are `opsagent-<run>-<call>`: who started a process can be seen on the host, and a call whose
outcome is unknown is settled by looking for its name.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from opsagent_tools import probes
from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.host import Command, Host, argv
from opsagent_tools.machine.processes import tell_secrets
from opsagent_tools.tool import Context

Backend = Literal["systemd", "group"]
State = Literal["running", "stopping", "exited", "lost", "gone"]
"""`lost`: it ended and nobody saw how (killed supervisor); `gone`: no trace, as after a reboot or when never started."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
NO_SYSTEMD = (
    "not been booted with systemd", "Failed to connect to bus", "Failed to connect to system scope bus",
    "Host is down", "Interactive authentication required", "Access denied", "No such file or directory",
)  # fmt: skip
TAKEN = ("already loaded", "has a fragment file", "already exists")
SHOWN = "LoadState,ActiveState,SubState,Result,MainPID,ExecMainPID,ExecMainCode,ExecMainStatus"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What to run. `env` may hold secrets: it travels by stdin into a file of mode 0600, never in an argv."""

    name: str
    argv: tuple[str, ...]
    log: str
    """Absolute path on the host; an older one is kept as LOG.1 … LOG.5."""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    grace_s: float = 30.0
    """Between SIGTERM and SIGKILL when the job is stopped by systemd itself."""
    log_limit: int = 64 << 20
    """Bytes; a longer log is turned over while the job runs (LOG.1 … LOG.5 are kept). 0: it may grow."""
    look_s: float = 10.0
    """How often its length is looked at."""


@dataclass(frozen=True, slots=True)
class Job:
    """A started job: enough to find it again, from another process, after a lost link."""

    name: str
    backend: Backend
    log: str
    pid: int | None = None
    started: str = ""
    """Start time of `pid` in clock ticks since boot: with the pid it names one process."""
    existing: bool = False
    """True when the job had been started before and was only found again."""

    @property
    def unit(self) -> str:
        """The name a person looks for: the unit of systemd, or the folder under /var/lib/opsagent/jobs."""
        return self.name


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A look at a job. `exit_code` is 128 + n after signal n, None while it runs or when nobody saw it."""

    state: State
    exit_code: int | None = None
    pid: int | None = None
    started: str = ""
    members: tuple[int, ...] = ()
    """Living processes of the job, as far as the host tells (the main one included)."""
    detail: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ("exited", "lost", "gone")


def job_name(ctx: Context) -> str:
    """`opsagent-<run>-<call>`."""
    return f"opsagent-{ctx.run_id}-{ctx.call_id}"


def start(host: Host, spec: JobSpec, ctx: Context | None = None) -> Job:
    """Start it and return at once. Raises ToolFailed when argv cannot be executed (nothing runs then), HostError otherwise.

    A job of this name that is already there is returned with `existing`, so that a repeated start does no harm.
    """
    _check(spec)
    if ctx:
        tell_secrets(spec.argv, dict(spec.env), ctx.secrets)
    found = find(host, spec.name, spec.log)  # before anything else: preparing would move a running job's log away
    if found:
        return found
    ready = _ask(
        host, {"op": "prepare", "name": spec.name, "log": spec.log, "cwd": spec.cwd, "env_file": True}, spec.env
    )
    spec = replace(spec, log=str(ready["log"]))
    done = argv(host, *_systemd_run(spec, str(ready["env_file"]), str(ready.get("home", ""))), timeout_s=60)
    _ask(host, {"op": "drop", "path": ready["env_file"]})
    words = f"{done.stderr}{done.stdout}"
    if done.ok:
        job = Job(spec.name, "systemd", spec.log)
        seen = status(host, job)
        _keep_short(host, spec, seen)
        return replace(job, pid=seen.pid, started=seen.started)
    if any(text in words for text in TAKEN):
        found = find(host, spec.name, spec.log)
        if found:
            return found
    if done.exit_code in (126, 127) or any(text in words for text in NO_SYSTEMD[:-1]):
        return _start_group(host, spec)
    raise ToolFailed(
        f"{spec.argv[0]} could not be started: {words.strip()[:300]}",
        where=host.name,
        hint="see `systemctl status` there",
    )


def _keep_short(host: Host, spec: JobSpec, seen: JobStatus) -> None:
    """systemd appends to a file without end: a small process beside the unit turns it over."""
    if not spec.log_limit or not seen.pid or not seen.started:
        return
    wanted = {"op": "watch", "log": spec.log, "pid": seen.pid, "started": seen.started, "limit": spec.log_limit,
              "every": spec.look_s}  # fmt: skip
    with contextlib.suppress(ToolFailed):  # the job itself is well
        _ask(host, wanted)


def _check(spec: JobSpec) -> None:
    if not NAME.fullmatch(spec.name):
        raise InputError(f"bad job name {spec.name!r}", hint="letters, digits, '-', '_' and '.'")
    if not spec.argv or not spec.log.startswith("/"):
        raise InputError("a job needs an argv and an absolute path for its log")
    for key, value in spec.env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) or "\0" in value:
            raise InputError(f"bad environment variable {key!r}")


def _systemd_run(spec: JobSpec, env_file: str, home: str) -> list[str]:
    properties = {
        "Type": "exec", "RemainAfterExit": "yes", "Restart": "no", "KillMode": "control-group",
        "TimeoutStopSec": f"{spec.grace_s:g}", "LimitNOFILE": "1048576", "EnvironmentFile": env_file,
        "StandardInput": "null", "StandardOutput": f"append:{spec.log}", "StandardError": f"append:{spec.log}",
    }  # fmt: skip
    if spec.cwd:
        properties["WorkingDirectory"] = spec.cwd
    words = ["systemd-run", f"--unit={spec.name}", "--quiet", "--no-ask-password"]
    words += [f"--property={key}={value}" for key, value in properties.items()]
    if home and "HOME" not in spec.env:  # a unit has no HOME, and caches of compiled kernels would land in odd places
        words.append(f"--setenv=HOME={home}")
    return [*words, "--", *spec.argv]


def _start_group(host: Host, spec: JobSpec) -> Job:
    wanted = {"op": "start", "name": spec.name, "log": spec.log, "cwd": spec.cwd, "argv": list(spec.argv),
              "limit": spec.log_limit, "every": spec.look_s}  # fmt: skip
    got = _ask(host, wanted, spec.env)
    return Job(spec.name, "group", spec.log, _int(got["pid"]), str(got["started"]), bool(got.get("existing")))


def find(host: Host, name: str, log: str = "") -> Job | None:
    """The job of that name, whichever way it was started; None when the host has no trace of it."""
    backends: tuple[Backend, ...] = ("systemd", "group")
    for backend in backends:
        job = Job(name, backend, log, existing=True)
        seen = status(host, job)
        if seen.state != "gone":
            where = seen.detail if backend == "group" else log
            return replace(job, pid=seen.pid, started=seen.started, log=where)
    return None


def status(host: Host, job: Job, ctx: Context | None = None) -> JobStatus:
    """Where it stands. A read; safe to repeat."""
    if job.backend == "systemd":
        return _unit_status(host, job)
    got = _ask(host, {"op": "status", "name": job.name})
    pids = tuple(int(pid) for pid in got["members"])
    return JobStatus(got["state"], got["exit_code"], got["pid"], str(got["started"]), pids, str(got.get("log", "")))


def _unit_status(host: Host, job: Job) -> JobStatus:
    done = argv(host, "systemctl", "show", f"{job.name}.service", f"--property={SHOWN}")
    if not done.ok:
        return JobStatus("gone", detail=done.stderr.strip()[:200])
    return parse_unit(done.stdout, lambda pid: _started(host, pid))


def parse_unit(text: str, started: Callable[[int], str] = lambda _pid: "") -> JobStatus:
    """Reads `systemctl show --property=…` of a transient unit (systemd 240 and newer)."""
    shown = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    active, sub, result = shown.get("ActiveState", ""), shown.get("SubState", ""), shown.get("Result", "")
    if shown.get("LoadState", "not-found") == "not-found":
        return JobStatus("gone")
    pid = _int(shown.get("MainPID")) or _int(shown.get("ExecMainPID")) or None
    if active == "deactivating":
        return JobStatus("stopping", pid=pid, started=started(pid) if pid else "", detail=sub)
    if active in ("active", "activating", "reloading") and sub != "exited":
        return JobStatus(
            "running", pid=pid, started=started(pid) if pid else "", members=(pid,) if pid else (), detail=sub
        )
    if not _int(shown.get("ExecMainPID")):
        return JobStatus("gone", detail=result)
    status, killed = _int(shown.get("ExecMainStatus")), _int(shown.get("ExecMainCode")) in (2, 3)
    return JobStatus("exited", 128 + status if killed else status, pid, detail=result)


def _started(host: Host, pid: int) -> str:
    done = argv(host, "cat", f"/proc/{pid}/stat", timeout_s=20)
    fields = done.stdout.rpartition(")")[2].split()
    return fields[19] if done.ok and len(fields) > 19 else ""


def stop(host: Host, job: Job, ctx: Context | None = None, *, grace_s: float = 30.0) -> JobStatus:
    """End every process of the job: SIGTERM, `grace_s` later SIGKILL. Returns the last look; `ended` says if it worked."""
    ctx = ctx or Context()
    if job.backend == "systemd":
        return _stop_unit(host, job, ctx, grace_s)
    for sig, patience in (("TERM", grace_s), ("KILL", 10.0)):
        _ask(host, {"op": "signal", "name": job.name, "signal": sig})
        seen = _until(host, job, ctx, patience, lambda s: s.ended and not s.members)
        if seen.ended and not seen.members:
            break
    return seen


def _stop_unit(host: Host, job: Job, ctx: Context, grace_s: float) -> JobStatus:
    unit = f"{job.name}.service"
    before = _unit_status(host, job)
    if before.state == "gone":
        return before
    seen = before
    if job.name.startswith("opsagent-"):  # ours are not restarted: so its exit code can be read before the unit goes
        argv(host, "systemctl", "kill", "--signal=SIGTERM", unit)
        seen = _until(host, job, ctx, grace_s, lambda s: s.ended)
    argv(host, "systemctl", "stop", "--no-block", unit)  # whatever is left in its cgroup goes too
    after = _until(host, job, ctx, 5.0 if seen.ended else grace_s, lambda s: s.ended)
    if not after.ended:
        argv(host, "systemctl", "kill", "--signal=SIGKILL", unit)
        after = _until(host, job, ctx, 10.0, lambda s: s.ended)
    if after.ended:
        argv(host, "systemctl", "reset-failed", unit)
    return seen if seen.ended and after.ended else after


def wait(
    host: Host, job: Job, ctx: Context, *, timeout_s: float, poll_s: float = 2.0,
    each: Callable[[JobStatus], None] = lambda _s: None,
) -> JobStatus:  # fmt: skip
    """Until it ended, the operator asked to stop, or `timeout_s` passed: then it still runs and the state says so."""

    def over(seen: JobStatus) -> bool:
        each(seen)
        return seen.ended or ctx.stopped()

    return _until(host, job, ctx, timeout_s, over, poll_s)


def _until(
    host: Host, job: Job, ctx: Context, seconds: float, done: Callable[[JobStatus], bool], poll_s: float = 0.5
) -> JobStatus:
    deadline = ctx.clock.now() + seconds
    while True:
        seen = status(host, job)
        if done(seen) or ctx.clock.now() >= deadline:
            return seen
        ctx.clock.sleep(poll_s)


def read_log(host: Host, path: str, offset: int = 0, *, limit: int = 1 << 20) -> tuple[bytes, int]:
    """New bytes of a log from `offset` on (at most `limit`), and the offset to go on from. Empty while there is no file."""
    chunks: list[bytes] = []
    stages = (("tail", "-c", f"+{offset + 1}", path), ("head", "-c", str(limit)))
    host.run(Command(stages), sink=lambda stream, data: chunks.append(data) if stream == "stdout" else None, keep=1024)
    data = b"".join(chunks)
    return data, offset + len(data)


def tail(host: Host, path: str, size: int) -> str:
    """The last `size` bytes of a log, '' while there is none."""
    done = argv(host, "tail", "-c", str(size), path, keep=size + 64)
    return done.stdout if done.ok else ""


def _ask(host: Host, argument: Mapping[str, object], env: Mapping[str, str] | None = None) -> dict[str, Any]:
    stdin = json.dumps(dict(env)) if env is not None else None
    got = probes.ask(host, "job", argument, stdin=stdin)
    if got.get("error"):
        raise ToolFailed(str(got["error"]), where=host.name, hint="nothing was started")
    return got


def _int(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return 0
