"""The tool `install_env`: one SGLang version, from a hashed lock, in a new virtual environment on the target."""

from __future__ import annotations

import posixpath

from pydantic import Field

from opsagent_tools import jobs, locks, probes
from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.host import Host, argv
from opsagent_tools.machine.gpus import read_gpus
from opsagent_tools.machine.system import read_disks, read_system
from opsagent_tools.machine.venvs import Venv, read_venvs
from opsagent_tools.sglang.diagnosis import diagnose
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

ROOM_GIB = 16.0
"""An environment of SGLang with torch and CUDA's libraries is 9 to 12 GiB, and its wheels lie beside it for a while."""
PATIENCE_S = 3600.0
BLOB_BYTES = 8 << 20


class InstallEnvArgs(Args):
    sglang: str = Field(description="Version, e.g. 0.5.11; one that has a lock.")
    venv: str = Field(pattern=r"^/.+", description="Folder of the new environment, absolute.")
    env: dict[str, str] = Field(
        default={}, description="Variables for the installer (proxy, package index); kept out of argv and logs."
    )
    wait_s: float = Field(default=PATIENCE_S, gt=0, description="Seconds to wait for the installer.")


class InstallEnvResult(Result):
    venv: str
    python: str
    """Its interpreter: what launch_sglang and preflight take."""
    sglang: str | None
    torch: str | None = None
    arch_list: list[str] = []
    """GPU generations that its torch has code for."""
    fits: bool | None = None
    """Whether they include this host's cards; null when that is not known."""
    created: bool = False
    """False: it was there already, as wanted."""
    packages: int = 0
    installer: str = ""
    lock: str = ""
    """The lock on the host."""
    unit: str = ""
    log: str = ""
    tail: str = ""
    """The end of the installer's log, when it failed."""
    blob: str = ""
    words: str = ""

    @property
    def failed(self) -> bool:
        return self.sglang is None or self.fits is False


def run(host: Host, args: InstallEnvArgs, ctx: Context | None = None) -> InstallEnvResult:
    """Install, or find it installed. A failed installation is a result with the installer's words.

    Raises InputError for a version without a lock, ToolFailed when the folder holds something else or the host lacks what
    it takes (glibc, disk, an installer).
    """
    ctx = ctx or Context()
    lock = _lock_of(args.sglang)
    python = posixpath.join(args.venv, "bin/python")
    there = _look(host, args.venv)
    if there is not None and there.sglang == args.sglang and _asked_again(host, args, lock):
        return _finished(host, args, lock, created=False, installer="")
    if there is not None and there.sglang not in (None, args.sglang):
        hint = "name another folder: environments are not rebuilt in place"
        raise ToolFailed(f"{args.venv} holds SGLang {there.sglang}, not {args.sglang}", where=host.name, hint=hint)
    _room(host, args)
    installer = _installer(host)
    if there is None:
        ctx.progress(Progress(f"making {args.venv} with {installer}"))
        _make(host, args.venv, installer)
    path = _put_lock(host, args, lock)
    spec = jobs.JobSpec(
        jobs.job_name(ctx), _command(installer, python, path), f"/var/log/opsagent/{jobs.job_name(ctx)}.log", args.env
    )
    job = jobs.start(host, spec, ctx)
    return _followed(host, job, args, ctx, lock, installer)


def _lock_of(version: str) -> str:
    if version not in locks.versions():
        known = ", ".join(locks.versions())
        hint = (
            "0.5.9 answers garbage for hybrid models at tensor parallel 2: it has none on purpose"
            if version == "0.5.9"
            else ""
        )
        raise InputError(f"no lock for SGLang {version} (there are {known})", hint=hint)
    return locks.text(version)


def _look(host: Host, venv: str) -> Venv | None:
    """What is in the folder; None when there is no environment. Raises ToolFailed when something else is there."""
    found = read_venvs(host, [], [posixpath.dirname(venv)], deep=False)
    mine = next((one for one in found if one.path == venv), None)
    if mine is None and argv(host, "ls", "-A", venv).stdout.strip():
        raise ToolFailed(f"{venv} is not empty and no environment", where=host.name, hint="name another folder")
    return mine


def _asked_again(host: Host, args: InstallEnvArgs, lock: str) -> bool:
    """Whether the lock beside the environment is ours: then the earlier installation was from it."""
    return argv(host, "cat", _lock_path(args), keep=len(lock) + 64).stdout == lock


def _lock_path(args: InstallEnvArgs) -> str:
    return f"{args.venv}/opsagent-sglang-{args.sglang}.txt"


def _put_lock(host: Host, args: InstallEnvArgs, lock: str) -> str:
    wanted = {"op": "write", "path": _lock_path(args), "mode": "0644", "expect": None, "backup": None, "parents": True}
    got = probes.ask(host, "file", wanted, stdin=lock)
    if got.get("error"):
        raise ToolFailed(f"the lock cannot be written: {got['error']}", where=host.name)
    return _lock_path(args)


def _room(host: Host, args: InstallEnvArgs) -> None:
    system = read_system(host)
    least = locks.GLIBC.get(args.sglang, "2.28")
    if system.glibc and _numbers(system.glibc) < _numbers(least):
        words = f"SGLang {args.sglang} needs glibc {least}, {host.name} has {system.glibc}"
        raise ToolFailed(words, where=host.name, hint="an older version, or a container with a newer system")
    disks = [
        disk for disk in read_disks(host) if args.venv.startswith(disk.mount.rstrip("/") + "/") or disk.mount == "/"
    ]
    mine = max(disks, key=lambda disk: len(disk.mount), default=None)
    if mine is not None and mine.free < ROOM_GIB * 2**30:
        words = f"{mine.free / 2**30:.1f} GiB are free on {mine.mount}, {ROOM_GIB:.0f} GiB are needed"
        raise ToolFailed(words, where=host.name, hint="make room, or name a folder on another disk")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _installer(host: Host) -> str:
    """`uv 0.11.33` or `pip`: what there is. The lock decides the versions, so an old uv does no harm."""
    for name in ("uv", "/root/.local/bin/uv"):
        done = argv(host, name, "--version")
        if done.ok:
            return f"{name} {done.stdout.split()[1] if len(done.stdout.split()) > 1 else ''}".strip()
    done = argv(host, f"python{locks.PYTHON}", "--version")
    if done.ok:
        return "pip"
    hint = f"install uv, or python{locks.PYTHON} with its venv module"
    raise ToolFailed(f"neither uv nor python{locks.PYTHON} is there", where=host.name, hint=hint)


def _make(host: Host, venv: str, installer: str) -> None:
    if installer == "pip":
        done = argv(host, f"python{locks.PYTHON}", "-m", "venv", venv, timeout_s=300)
    else:
        done = argv(host, installer.split()[0], "venv", "--python", locks.PYTHON, venv, timeout_s=600)
    if not done.ok:
        raise ToolFailed(f"no environment: {(done.stderr or done.stdout).strip()[-300:]}", where=host.name)


def _command(installer: str, python: str, lock: str) -> tuple[str, ...]:
    if installer == "pip":
        return (python, "-m", "pip", "install", "--require-hashes", "--no-deps", "-r", lock)
    return (installer.split()[0], "pip", "install", "--python", python, "--require-hashes", "--no-deps", "-r", lock)


def _followed(
    host: Host, job: jobs.Job, args: InstallEnvArgs, ctx: Context, lock: str, installer: str
) -> InstallEnvResult:
    def each(_seen: jobs.JobStatus) -> None:
        lines = [line for line in jobs.tail(host, job.log, 400).replace("\r", "\n").splitlines() if line.strip()]
        ctx.progress(Progress(f"{installer}: {lines[-1][:120] if lines else 'no output yet'}"))

    seen = jobs.wait(host, job, ctx, timeout_s=args.wait_s, each=each)
    if seen.state != "exited" or seen.exit_code != 0:
        return _not_installed(host, job, args, ctx, seen, installer)
    result = _finished(host, args, lock, created=True, installer=installer)
    return result.model_copy(update={"unit": job.name, "log": job.log})


def _not_installed(
    host: Host, job: jobs.Job, args: InstallEnvArgs, ctx: Context, seen: jobs.JobStatus, installer: str
) -> InstallEnvResult:
    whole = jobs.read_log(host, job.log, limit=BLOB_BYTES)[0]
    tail = jobs.tail(host, job.log, 3000)
    lines = [line for line in tail.splitlines() if line.strip()]
    words = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no output")
    how = f"exit {seen.exit_code}" if seen.state == "exited" else seen.state
    return InstallEnvResult(
        venv=args.venv, python=f"{args.venv}/bin/python", sglang=None, created=True, installer=installer,
        lock=_lock_path(args), unit=job.name, log=job.log, tail=tail, blob=ctx.keep(f"{job.name}.log", whole),
        words=words[:400],
        cause=diagnose(tail.splitlines()).cause or "dependency-resolution-failed",
        summary=f"not installed ({how}): {words}"[:300],
    )  # fmt: skip


def _finished(host: Host, args: InstallEnvArgs, lock: str, *, created: bool, installer: str) -> InstallEnvResult:
    """Look at what is there now, not at what the installer said."""
    capabilities = sorted({card.compute_capability for card in read_gpus(host)[1] if card.compute_capability})
    found = read_venvs(host, capabilities, [posixpath.dirname(args.venv)])
    mine = next((one for one in found if one.path == args.venv), None)
    sglang = mine.sglang if mine is not None and mine.sglang == args.sglang else None
    words = "" if mine is None else mine.words
    if sglang is None:
        words = f"{args.venv} has SGLang {mine.sglang if mine else None} after the installation"
    fits = {True: "built for these cards", False: "not built for these cards", None: "its cards are not known"}
    which = mine.fits if mine else None
    return InstallEnvResult(
        venv=args.venv, python=f"{args.venv}/bin/python", sglang=sglang, torch=mine.torch if mine else None,
        arch_list=mine.arch_list if mine else [], fits=which, created=created, packages=len(locks.packages(lock)),
        installer=installer, lock=_lock_path(args), words=words,
        cause=mine.cause if mine else "dependency-resolution-failed",
        summary=f"SGLang {sglang} in {args.venv}, {'new' if created else 'there already'}; {fits[which]}",
    )  # fmt: skip


def probe(host: Host, args: InstallEnvArgs, ctx: Context) -> InstallEnvResult | None:
    """After an unknown outcome: whether the installer of this call was started, and how it ended."""
    name = jobs.job_name(ctx)
    job = jobs.find(host, name, f"/var/log/opsagent/{name}.log")
    return _followed(host, job, args, ctx, _lock_of(args.sglang), "installer") if job else None


TOOL = Tool(
    name="install_env",
    description=(
        "Install one SGLang version into a new virtual environment on the host, from a lock with the hash of every package, "
        "as a supervised job (10 minutes, some GiB). An environment that is there already as wanted is found, not rebuilt. "
        "Says which GPU generations it was built for and whether that fits the host's cards."
    ),
    args=InstallEnvArgs,
    result=InstallEnvResult,
    run=run,
    tier="R1",
    recovery="reconcilable",
    probe=probe,
)
