"""Doubles that satisfy the protocols: a clock that only tells what was slept, and a host with state."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from opsagent_tools.host import Argv, Command, Completed, Sink

Out = tuple[int, str, str]
Program = Callable[["FakeHost", Argv, str], Out]
MISSING: Out = (127, "", "command not found\n")


@dataclass
class StepClock:
    """Time passes only when somebody sleeps (and a hair at every look, so that loops end)."""

    seconds: float = 0.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += max(0.0, seconds)


@dataclass
class Script:
    """What a started job does: text for its log by second, when and how it ends, and the port on which it listens."""

    log: list[tuple[float, str]] = field(default_factory=list)
    ends: tuple[float, int] | None = None
    """Second and exit code (128 + n: killed by signal n)."""
    listens: tuple[float, int] | None = None
    """Second and port."""
    http: dict[str, str] = field(default_factory=dict)
    """Bodies by path, once it listens."""
    ignores_term: bool = False
    gpu_mib: dict[int, int] = field(default_factory=dict)
    leaves: list[int] = field(default_factory=list)
    """Workers (pids) that outlive it."""


@dataclass
class Unit:
    """A job that was started."""

    name: str
    argv: list[str]
    env_file: str
    script: Script
    pid: int
    began: float
    log_path: str
    ended: tuple[float, int] | None = None

    def end(self, now: float) -> tuple[float, int] | None:
        if self.ended is None and self.script.ends and now >= self.began + self.script.ends[0]:
            self.ended = (self.began + self.script.ends[0], self.script.ends[1])
        return self.ended


@dataclass
class FakeHost:
    """A machine with files, units, listeners and GPUs. A program that it does not have is 127, never an empty success."""

    name: str = "fake"
    clock: StepClock = field(default_factory=StepClock)
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    listeners: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Port to (pid, process) of what others run there."""
    http: dict[str, str] = field(default_factory=dict)
    """Bodies by `PORT/path` of what others run there."""
    gpus: list[tuple[str, int]] = field(default_factory=list)
    """Name and memory in MiB."""
    gpu_used: dict[int, int] = field(default_factory=dict)
    script: Script = field(default_factory=Script)
    """What the next job will do."""
    systemd: bool = True
    boot_id: str = "11111111-1111-1111-1111-111111111111"
    commands: list[Argv] = field(default_factory=list)
    faults: list[tuple[int, Exception]] = field(default_factory=list)
    """(number of the command at which it is raised, error)."""
    programs: dict[str, Program] = field(default_factory=lambda: dict(PROGRAMS))
    hits: int = 0
    """Faults that were raised: a fault that never landed proves nothing."""

    def run(self, command: Command, *, sink: Sink | None = None, keep: int = 65536) -> Completed:
        text, err, code = command.stdin or "", "", 0
        for argv in command.stages:
            self.commands.append(argv)
            for number, error in self.faults:
                if number == len(self.commands):
                    self.hits += 1
                    raise error
            program = self.programs.get(argv[0].rpartition("/")[2])
            code, text, said = program(self, argv, text) if program else MISSING
            err += said
        if sink:
            sink("stdout", text.encode())
            sink("stderr", err.encode())
        sizes = len(text.encode()), len(err.encode())
        return Completed(code, text[:keep], err[:keep], *sizes, duration_s=0.01)

    def close(self) -> None:
        """Nothing to close."""

    # -- state

    def log_of(self, unit: Unit) -> str:
        until = (unit.end(self.clock.now()) or (self.clock.now(), 0))[0] - unit.began
        return "".join(text for second, text in unit.script.log if second <= until)

    def listening(self, unit: Unit) -> bool:
        at = unit.script.listens
        return bool(at) and unit.end(self.clock.now()) is None and self.clock.now() >= unit.began + (at or (0, 0))[0]

    def read(self, path: str) -> str | None:
        for unit in self.units.values():
            if path == unit.log_path:
                return self.log_of(unit)
            if path == f"/proc/{unit.pid}/stat" and unit.end(self.clock.now()) is None:
                return (
                    f"{unit.pid} (python) S 1 {unit.pid} {unit.pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {unit.pid}77 0 0\n"
                )
            if path == f"/proc/{unit.pid}/cgroup":
                return f"0::/system.slice/{unit.name}.service\n"
        if path == "/proc/sys/kernel/random/boot_id":
            return self.boot_id + "\n"
        return self.files[path].decode("utf-8", "replace") if path in self.files else None

    def processes(self) -> list[tuple[int, int, str]]:
        """Pid, parent, words of all that lives."""
        rows = [(pid, 1, f"other --port {port}") for port, (pid, _name) in self.listeners.items()]
        for unit in self.units.values():
            alive = unit.end(self.clock.now()) is None
            rows += [(unit.pid, 1, " ".join(unit.argv))] if alive else []
            rows += [(pid, unit.pid if alive else 1, "sglang::scheduler_TP0") for pid in unit.script.leaves]
        return rows

    def used(self, card: int) -> int:
        total = self.gpu_used.get(card, 0)
        for unit in self.units.values():
            if unit.end(self.clock.now()) is None or unit.script.leaves:
                total += unit.script.gpu_mib.get(card, 0)
        return total


# -- programs


def cat(host: FakeHost, argv: Argv, stdin: str) -> Out:
    text = host.read(argv[1]) if len(argv) > 1 else stdin
    return (0, text, "") if text is not None else (1, "", f"cat: {argv[1]}: No such file or directory\n")


def tail(host: FakeHost, argv: Argv, stdin: str) -> Out:
    text = host.read(argv[3])
    if text is None:
        return 1, "", f"tail: cannot open '{argv[3]}' for reading: No such file or directory\n"
    data = text.encode()
    data = data[int(argv[2]) - 1 :] if argv[2].startswith("+") else data[-int(argv[2]) :]
    return 0, data.decode("utf-8", "replace"), ""


def stat(host: FakeHost, argv: Argv, stdin: str) -> Out:
    text = host.read(argv[-1])
    if text is None:
        return 1, "", f"stat: cannot statx '{argv[-1]}': No such file or directory\n"
    return 0, f"{len(text.encode())} 77\n", ""


def head(host: FakeHost, argv: Argv, stdin: str) -> Out:
    return 0, stdin.encode()[: int(argv[2])].decode("utf-8", "replace"), ""


def systemd_run(host: FakeHost, argv: Argv, stdin: str) -> Out:
    if not host.systemd:
        words = "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
        return 1, "", words + "Failed to connect to bus: Host is down\n"
    options = dict(word.removeprefix("--property=").split("=", 1) for word in argv if word.startswith("--property="))
    name = next(word.removeprefix("--unit=") for word in argv if word.startswith("--unit="))
    if name in host.units:
        return 1, "", f"Failed to start transient service unit: Unit {name}.service was already loaded.\n"
    command = list(argv[argv.index("--") + 1 :])
    log = options["StandardOutput"].removeprefix("append:")
    pid = 4000 + 100 * len(host.units)
    assert options["EnvironmentFile"] in host.files, "the unit cannot read its environment"
    host.units[name] = Unit(name, command, options["EnvironmentFile"], host.script, pid, host.clock.now(), log)
    return 0, "", ""


def systemctl(host: FakeHost, argv: Argv, stdin: str) -> Out:
    verb = argv[1]
    unit = next(
        (host.units[w.removesuffix(".service")] for w in argv if w.removesuffix(".service") in host.units), None
    )
    now = host.clock.now()
    if verb == "show":
        if unit is None:
            return 0, "LoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\n", ""
        return 0, _shown(unit, unit.end(now)), ""
    if verb == "reboot":
        return 0, "", ""
    if unit is None:
        return 5, "", f"Failed to {verb}: Unit not loaded.\n"
    if verb in ("kill", "stop") and unit.end(now) is None:
        hard = "--signal=SIGKILL" in argv
        if hard or not unit.script.ignores_term:
            unit.ended = (now, 137 if hard else 143)
    if verb == "stop" and unit.end(now) and (unit.ended or (0, 0))[1] == 0:
        del host.units[unit.name]
    return 0, "", ""


def _shown(unit: Unit, end: tuple[float, int] | None) -> str:
    if end is None:
        rows = {"ActiveState": "active", "SubState": "running", "Result": "success", "MainPID": unit.pid, "ExecMainCode": 0,
                "ExecMainStatus": 0}  # fmt: skip
    else:
        code, killed = end[1], end[1] > 128
        state = (
            ("active", "exited", "success") if code == 0 else ("failed", "failed", "signal" if killed else "exit-code")
        )
        rows = {"ActiveState": state[0], "SubState": state[1], "Result": state[2], "MainPID": 0,
                "ExecMainCode": 2 if killed else 1, "ExecMainStatus": code - 128 if killed else code}  # fmt: skip
    rows |= {"LoadState": "loaded", "ExecMainPID": unit.pid}
    return "".join(f"{key}={value}\n" for key, value in rows.items())


def python3(host: FakeHost, argv: Argv, stdin: str) -> Out:
    """Answers the probe `job` in so far as systemd-run needs it."""
    first = argv[2].splitlines()[0]
    wanted = json.loads(argv[3])
    if first != "# opsagent probe: job":
        return 1, "", f"fake: no {first}\n"
    if wanted["op"] == "prepare":
        path = f"/var/lib/opsagent/jobs/{wanted['name']}/env"
        host.files[path], host.modes[path] = stdin.encode(), 0o600
        answer: dict[str, object] = {"log": wanted["log"], "rotated": None, "env_file": path, "home": "/root"}
    elif wanted["op"] == "watch":
        answer = {"watching": 4999}
    elif wanted["op"] == "drop":
        answer = {"dropped": host.files.pop(wanted["path"], None) is not None}
    elif wanted["op"] == "status":
        answer = {"state": "gone", "exit_code": None, "pid": None, "started": "", "members": [], "log": ""}
    else:
        return 1, "", "fake: only systemd\n"
    return 0, json.dumps(answer) + "\n", ""


def ss(host: FakeHost, argv: Argv, stdin: str) -> Out:
    rows = [
        f'LISTEN 0 5 127.0.0.1:{port} 0.0.0.0:* users:(("{name}",pid={pid},fd=3))'
        for port, (pid, name) in host.listeners.items()
    ]
    for unit in host.units.values():
        if host.listening(unit) and unit.script.listens and unit.script.listens[1] not in host.listeners:
            rows.append(
                f'LISTEN 0 5 127.0.0.1:{unit.script.listens[1]} 0.0.0.0:* users:(("python",pid={unit.pid},fd=9))'
            )
    return 0, "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n" + "\n".join(rows) + "\n", ""


def curl(host: FakeHost, argv: Argv, stdin: str) -> Out:
    found = re.search(r"//[^/]*:(\d+)(/\S*)", argv[-1])
    assert found
    port, path = int(found[1]), found[2]
    body = host.http.get(f"{port}{path}")
    for unit in host.units.values():
        if (
            port not in host.listeners
            and host.listening(unit)
            and unit.script.listens
            and unit.script.listens[1] == port
        ):
            body = unit.script.http.get(path)
    if body is None and port not in host.listeners and not any(host.listening(u) for u in host.units.values()):
        return 7, "\n000", f"curl: (7) Failed to connect to 127.0.0.1 port {port}\n"
    return 0, (body or '{"detail":"Not Found"}') + ("\n200" if body is not None else "\n404"), ""


def ps(host: FakeHost, argv: Argv, stdin: str) -> Out:
    rows = [f"{pid} {parent} {pid} {pid} root 10 S {words}" for pid, parent, words in host.processes()]
    return 0, "\n".join(rows) + "\n", ""


def kill(host: FakeHost, argv: Argv, stdin: str) -> Out:
    hard = argv[1] == "-KILL"
    for pid in (int(word) for word in argv[2:]):
        host.listeners = {port: who for port, who in host.listeners.items() if who[0] != pid}
        for unit in host.units.values():
            unit.script.leaves = [
                one for one in unit.script.leaves if one != pid or (unit.script.ignores_term and not hard)
            ]
            if unit.pid == pid and unit.end(host.clock.now()) is None and (hard or not unit.script.ignores_term):
                unit.ended = (host.clock.now(), 137 if hard else 143)
    return 0, "", ""


def nvidia_smi(host: FakeHost, argv: Argv, stdin: str) -> Out:
    if not host.gpus:
        return MISSING
    query = next((word for word in argv if word.startswith("--query-gpu=")), "")
    if query == "--query-gpu=index,memory.used":
        return 0, "".join(f"{n}, {host.used(n)}\n" for n in range(len(host.gpus))), ""
    if query == "--query-gpu=index,name":
        return 0, "".join(f"{n}, NVIDIA {name}\n" for n, (name, _mib) in enumerate(host.gpus)), ""
    if query == "--query-gpu=index,uuid":
        return 0, "".join(f"{n}, GPU-{n}\n" for n in range(len(host.gpus))), ""
    if any(word.startswith("--query-compute-apps") for word in argv):
        rows = [f"GPU-{card}, {unit.pid}, python, {mib}" for unit in host.units.values()
                if unit.end(host.clock.now()) is None for card, mib in unit.script.gpu_mib.items()]  # fmt: skip
        return 0, "".join(row + "\n" for row in rows), ""
    return 2, "", "fake: not that query\n"


PROGRAMS: dict[str, Program] = {
    "cat": cat, "tail": tail, "head": head, "stat": stat, "systemd-run": systemd_run, "systemctl": systemctl,
    "python3": python3, "ss": ss, "curl": curl, "ps": ps, "kill": kill, "nvidia-smi": nvidia_smi,
}  # fmt: skip
