# opsagent probe: job
"""A long command that outlives the link, on a machine without systemd; and what systemd-run needs before it starts.

Argument (JSON object), `op` is one of

* `prepare`  {op, name, log, cwd, env_file: bool}; stdin: JSON object of the environment (may hold secrets).
  Makes the log's folder, moves an old log to LOG.1 (up to LOG.5), and with `env_file` writes the environment for
  systemd's `EnvironmentFile=` with mode 0600. Answer: {log, rotated: path|null, env_file: path|null, home}; `log` is another
  path when we may not write into the folder that was asked for.
* `start`    {op, name, log, cwd, argv: [str]}; stdin as above. Starts argv in a session of its own under a small supervisor
  that keeps the exit code. Answer: {pid, started, existing: bool}, or {error} when argv cannot be executed. A name
  that was started before is not started again: `existing` is true.
* `status`   {op, name}. Answer: {state: "running"|"exited"|"lost"|"gone", exit_code: int|null, pid: int|null,
  started: str, members: [pid], log: str}. `lost`: it ended, but nobody saw the exit code (killed supervisor, reboot).
  `exited` with members: the main process is gone and left others behind.
* `signal`   {op, name, signal: "TERM"|"KILL"|"INT"}. Sends it to every process of the job. Answer: {members: [pid]}.
* `drop`     {op, path}. Removes an env file that `prepare` wrote. Answer: {dropped: bool}.
* `watch`    {op, log, pid, started, limit: bytes, every: seconds}. Leaves a small process behind that keeps the log of a
  unit below `limit`, and ends with that pid. Answer: {watching: pid}. A job of `start` is watched by its supervisor (`limit`
  and `every` there; no limit without them).

`started` is the start time of the pid in clock ticks since boot (field 22 of /proc/PID/stat): with the pid it names one
process. An answer with `error` means that nothing was done.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

KEEP_LOGS = 5
EVERY_S = 10.0
OURS = ("OPENAI_", "OPSAGENT_", "PYTHONPATH", "PYTHONHOME", "LC_ALL", "PAGER")
PR_SET_CHILD_SUBREAPER = 36


def folder(name: str) -> Path:
    """Where the files of a job lie: job.json, exit, env."""
    chosen = os.environ.get("OPSAGENT_JOBS_DIR")
    if chosen:
        return Path(chosen) / name
    if os.geteuid() == 0:
        return Path("/var/lib/opsagent/jobs") / name
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "opsagent" / "jobs" / name


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Whole or not at all, and never readable by others for a moment when `mode` says so."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)


def load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def stat(pid: int) -> dict[str, Any]:
    """State, parent, session and start time of a pid; {} when it is not there. Its name may hold spaces and ')'."""
    try:
        rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return {}
    return {"state": rest[0], "parent": int(rest[1]), "session": int(rest[3]), "started": rest[19]}


def alive(pid: int, started: str) -> bool:
    found = stat(pid)
    return bool(found) and found["started"] == started and found["state"] not in "ZX"


def members(job: dict[str, Any]) -> list[int]:
    """Every living process of a job: those of its session, and all that descend from it or from its supervisor."""
    if job.get("boot") != boot():
        return []
    table = {int(entry.name): stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    table = {pid: found for pid, found in table.items() if found and found["state"] not in "ZX"}
    leader = table.get(job["pid"])
    session_is_ours = leader is None or leader["started"] == job["started"]
    mine = {pid for pid, found in table.items() if session_is_ours and found["session"] == job["pid"]}
    mine |= {
        pid for pid in (job["pid"], job["supervisor"]) if pid in table and table[pid]["started"] == job["ids"][str(pid)]
    }
    more = mine
    while more:
        more = {pid for pid, found in table.items() if found["parent"] in mine and pid not in mine}
        mine = mine | more
    return sorted(mine - {job["supervisor"], os.getpid()})


def rotate(log: Path) -> str | None:
    """Make room for a new log: LOG becomes LOG.1, and so on; the oldest goes."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if not log.exists() or log.stat().st_size == 0:
        return None
    older(log)
    log.replace(f"{log}.1")
    return f"{log}.1"


def turn_over(log: Path, limit: int) -> bool:
    """Keep a log that is being written below `limit` bytes: what is there goes to LOG.1, and LOG begins anew.

    Copied and cut, not renamed: whoever writes holds the file open (in append mode) and would go on in the renamed one. What
    is written in the instant between the last copy and the cut is lost.
    """
    if log.stat().st_size < limit:
        return False
    part = Path(f"{log}.part")
    try:
        with log.open("rb") as old, part.open("wb") as kept:
            shutil.copyfileobj(old, kept, 1 << 20)
            shutil.copyfileobj(old, kept)  # what was written meanwhile
            os.truncate(log, 0)
    except OSError:  # no room: better a long log than none
        with contextlib.suppress(OSError):
            part.unlink()
        return False
    with log.open("ab") as new:
        new.write(b"# opsagent: this log goes on from %s.1\n" % log.name.encode())
    older(log)
    part.replace(f"{log}.1")
    return True


def older(log: Path) -> None:
    """LOG.1 becomes LOG.2, and so on; the oldest goes."""
    for n in range(KEEP_LOGS - 1, 0, -1):
        before = Path(f"{log}.{n}")
        if before.exists():
            before.replace(f"{log}.{n + 1}")


def keep_short(job: dict[str, Any], until: Any = lambda: False) -> None:
    """Turn the log over whenever it is too long, for as long as the job lives."""
    while not until():
        with contextlib.suppress(OSError):
            turn_over(Path(job["log"]), int(job["limit"]))
        time.sleep(float(job.get("every") or EVERY_S))


def watch(job: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            os.setsid()
            second = os.fork()
            if second:
                os.write(writing, str(second).encode())
                os._exit(0)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.close(reading)
            os.close(writing)
            keep_short(job, lambda: not alive(int(job["pid"]), str(job["started"])))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(first, 0)
    return {"watching": int(said)}


def quoted(value: str) -> str:
    """A value as systemd reads it in an EnvironmentFile: double quotes, with backslashes before the special ones."""
    for special in '\\"`$':
        value = value.replace(special, "\\" + special)
    return f'"{value}"'


def prepare(job: dict[str, Any], env: dict[str, str]) -> dict[str, Any]:
    if job.get("cwd") and not Path(job["cwd"]).is_dir():
        return {"error": f"no such directory: {job['cwd']}"}
    path, log = None, Path(job["log"])
    try:
        rotated = rotate(log)
    except PermissionError:  # not root: the log goes where the job's files are
        log = folder(job["name"]) / "log"
        rotated = rotate(log)
    if job.get("env_file"):
        path = folder(job["name"]) / "env"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, "".join(f"{key}={quoted(value)}\n" for key, value in sorted(env.items())), 0o600)
    home = os.environ.get("HOME") or str(Path.home())
    return {"log": str(log), "rotated": rotated, "env_file": str(path) if path else None, "home": home}


def start(job: dict[str, Any], env: dict[str, str]) -> Any:
    home = folder(job["name"])
    known = load(home / "job.json")
    if known:
        return {"pid": known["pid"], "started": known["started"], "existing": True}
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(job["log"]).parent.mkdir(parents=True, exist_ok=True)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    inherited.update(env)
    reading, writing = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(reading)
        try:
            supervise(job, inherited, home, writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(first, 0)
    return json.loads(said) if said else {"error": "the supervisor did not start"}


def supervise(job: dict[str, Any], env: dict[str, str], home: Path, writing: int) -> None:
    """The other half of `start`, in the background: start argv, say its pid, keep the exit code, reap what is left."""
    os.setsid()
    if os.fork():
        os._exit(0)
    with contextlib.suppress(OSError, AttributeError):  # orphans of the job become ours: so we can find them
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for sig in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, signal.SIG_IGN)
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        main = subprocess.Popen(
            job["argv"], stdin=null, stdout=log, stderr=log, cwd=job.get("cwd") or None, env=env,
            start_new_session=True, preexec_fn=unignore,
        )  # fmt: skip
    except OSError as error:
        os.write(writing, json.dumps({"error": f"{job['argv'][0]}: {error.strerror}"}).encode())
        return
    started = stat(main.pid).get("started", "")
    record = {
        "name": job["name"], "pid": main.pid, "started": started, "supervisor": os.getpid(), "boot": boot(),
        "ids": {str(main.pid): started, str(os.getpid()): stat(os.getpid()).get("started", "")}, "log": job["log"],
    }  # fmt: skip
    write(home / "job.json", json.dumps(record))
    os.write(writing, json.dumps({"pid": main.pid, "started": started, "existing": False}).encode())
    os.close(writing)
    if job.get("limit"):
        threading.Thread(target=keep_short, args=(job,), daemon=True).start()
    code = main.wait()
    write(home / "exit", json.dumps({"exit_code": code if code >= 0 else 128 - code, "at": time.time()}))
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def unignore() -> None:
    for sig in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, signal.SIG_DFL)


def status(job: dict[str, Any]) -> dict[str, Any]:
    known = load(folder(job["name"]) / "job.json")
    if not known:
        return {"state": "gone", "exit_code": None, "pid": None, "started": "", "members": [], "log": ""}
    same = known["boot"] == boot()
    # the supervisor counts, too: for a moment the process is dead and its exit code is not yet written
    running = same and any(alive(int(pid), started) for pid, started in known["ids"].items())
    ended = load(folder(job["name"]) / "exit")
    state = "exited" if ended else ("running" if running else "lost")
    return {
        "state": state, "exit_code": ended["exit_code"] if ended else None, "pid": known["pid"],
        "started": known["started"], "members": members(known), "log": known["log"],
    }  # fmt: skip


def send(job: dict[str, Any]) -> dict[str, Any]:
    known = load(folder(job["name"]) / "job.json")
    found = members(known) if known else []
    for pid in found:
        with contextlib.suppress(OSError):  # it went by itself in between
            os.kill(pid, getattr(signal, "SIG" + job["signal"]))
    return {"members": found}


def drop(job: dict[str, Any]) -> dict[str, Any]:
    try:
        Path(job["path"]).unlink()
    except OSError:
        return {"dropped": False}
    return {"dropped": True}


def act(job: dict[str, Any]) -> Any:
    if job["op"] in ("prepare", "start"):
        env = json.loads(sys.stdin.read() or "{}")
        return prepare(job, env) if job["op"] == "prepare" else start(job, env)
    return {"status": status, "signal": send, "drop": drop, "watch": watch}[job["op"]](job)


def main() -> None:
    try:
        answer = act(json.loads(sys.argv[1]))
    except OSError as error:
        answer = {"error": f"{error.filename or 'job'}: {error.strerror}"}
    print(json.dumps(answer))


main()
