"""ps, kill and ss: processes and sockets of a simulated host."""

from __future__ import annotations

from collections.abc import Callable

from opsagent_lab import processes
from opsagent_lab.clock import stamp
from opsagent_lab.program import Process, Registry
from opsagent_lab.programs.options import read
from opsagent_lab.state import SimProcess
from opsagent_lab.views import comm

_NUMBERS = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "ABRT": 6,
    "KILL": 9,
    "USR1": 10,
    "USR2": 12,
    "TERM": 15,
    "CONT": 18,
    "STOP": 19,
}


def _args(sim: SimProcess) -> str:
    return sim.title or " ".join(sim.argv)


def _elapsed(seconds: float) -> str:
    days, rest = divmod(int(max(0, seconds)), 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock if rest >= 3600 else clock[3:]


def _columns(process: Process) -> dict[str, tuple[str, Callable[[SimProcess], str]]]:
    now = process.now
    table: dict[str, tuple[str, Callable[[SimProcess], str]]] = {
        "pid": ("PID", lambda s: str(s.pid)),
        "ppid": ("PPID", lambda s: str(s.ppid)),
        "pgid": ("PGID", lambda s: str(s.pgid)),
        "sid": ("SID", lambda s: str(s.sid)),
        "user": ("USER", lambda s: s.user),
        "stat": ("STAT", lambda s: s.state),
        "etimes": ("ELAPSED", lambda s: str(int(max(0, now - s.started)))),
        "etime": ("ELAPSED", lambda s: _elapsed(now - s.started)),
        "lstart": ("STARTED", lambda s: stamp(s.started, "%a %b %d %H:%M:%S %Y")),
        "comm": ("COMMAND", comm),
        "args": ("COMMAND", _args),
        "rss": ("RSS", lambda s: str(s.rss_mib * 1024)),
        "pcpu": ("%CPU", lambda _s: "0.0"),
        "pmem": ("%MEM", lambda _s: "0.1"),
        "unit": ("UNIT", lambda s: s.unit or "-"),
        "cgroup": ("CGROUP", lambda s: f"0::{s.cgroup}"),
    }
    table |= {
        "cmd": table["args"],
        "command": table["args"],
        "uid": table["user"],
        "s": table["stat"],
        "state": table["stat"],
    }
    return table


def _ps(process: Process) -> int:
    wanted: list[str] = []
    pids: set[int] | None = None
    everyone = False
    todo = list(process.args)
    while todo:
        word = todo.pop(0)
        if word.startswith("--sort") or word in ("-ww", "-w", "ww"):
            continue
        if word in ("-p", "--pid"):
            pids = {int(p) for p in todo.pop(0).replace(",", " ").split()} if todo else set()
        elif word.startswith("-") and word.endswith("o") and todo:
            everyone = everyone or any(c in word for c in "eA")
            wanted += todo.pop(0).split(",")
        elif word in ("-e", "-A", "-ef", "aux", "-aux", "-eF", "auxww", "axu"):
            everyone = True
            wanted = wanted or (
                ["user", "pid", "pcpu", "pmem", "rss", "stat", "args"]
                if "u" in word
                else ["user", "pid", "ppid", "etime", "args"]
            )
        elif word in ("--no-headers", "--no-heading", "h"):
            wanted = [w if "=" in w else w + "=" for w in wanted]
        else:
            process.write_err(f"error: unsupported option: {word}\n\nUsage:\n ps [options]\n")
            return 1
    return _print(process, wanted or ["pid", "etime", "comm"], pids, everyone)


def _print(process: Process, wanted: list[str], pids: set[int] | None, everyone: bool) -> int:
    table = _columns(process)
    keys, heads = [], []
    for item in wanted:
        name, given, head = item.partition("=")
        name = name.partition(":")[0].strip().lower()
        if name not in table:
            process.write_err(f'error: unknown user-defined format specifier "{name}"\n\nUsage:\n ps [options]\n')
            return 1
        keys.append(name)
        heads.append(head if given else table[name][0])
    sims = processes.seen(process.world, process.host)
    if pids is not None:
        sims = [s for s in sims if s.pid in pids]
    elif not everyone:
        sims = [s for s in sims if s.sid == process.sim.sid]
    rows = [[table[k][1](s) for k in keys] for s in sims]
    widths = [max([len(r[i]) for r in rows] + [len(heads[i])]) for i in range(len(keys))]
    lines = ([heads] if any(heads) else []) + rows
    for row in lines:
        process.write_out(
            " ".join(c.rjust(w) if i + 1 < len(row) else c for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            + "\n"
        )
    return 0 if rows else 1


def _kill(process: Process) -> int:
    args, signum = list(process.args), 15
    if args and args[0].startswith("-") and args[0] != "--":
        word = args.pop(0).removeprefix("-")
        word = args.pop(0) if word in ("s", "n") and args else word
        name = word.upper().removeprefix("SIG")
        if not (name.isdigit() or name in _NUMBERS):
            return process.fail(f"unknown signal {word}")
        signum = int(name) if name.isdigit() else _NUMBERS[name]
    code = 0
    for word in [a for a in args if a != "--"]:
        if not word.lstrip("-").isdigit():
            return process.fail(f"failed to parse argument: '{word}'")
        number = int(word)
        sims = processes.seen(process.world, process.host) if number < 0 else []
        group = [s.pid for s in sims if s.pgid == -number] if number < 0 else [number]
        hit = [pid for pid in group if process.world.signal(process.host, pid, signum)]
        if not hit:
            process.write_err(f"kill: ({word}): No such process\n")
            code = 1
    return code


def _ss(process: Process) -> int:
    long = {"listening": "l", "tcp": "t", "udp": "u", "numeric": "n", "processes": "p", "no-header": "H", "all": "a",
            "extended": "e", "info": "i", "memory": "m", "oneline": "O", "ipv4": "4", "ipv6": "6"}  # fmt: skip
    options = read(process, "ltunpHaeimO46rsx", "", long, code=255)
    listening, head, owner = "l" in options or "a" in options, "H" not in options, "p" in options
    port = next((a.rpartition(":")[2] for a in options.operands if ":" in a), "").strip(" ()\"'")
    if head:
        process.write_out(
            "State  Recv-Q Send-Q Local Address:Port  Peer Address:Port" + ("Process" if owner else "") + "\n"
        )
    if not listening:
        return 0
    if "u" in options and "t" not in options:
        return 0
    for sim in sorted(list(process.host.processes.values()), key=lambda s: s.pid):
        for address, number in sim.ports:
            if port and port.strip(" \"'") != str(number):
                continue
            shown = "*" if address in ("*", "::") else address
            peer = "*:*" if shown == "*" else "0.0.0.0:*"
            users = f'users:(("{comm(sim)}",pid={sim.pid},fd=7))' if owner else ""
            process.write_out(f"LISTEN 0      2048   {shown}:{number}  {peer} {users}\n")
    return 0


PROGRAMS: Registry = {"ps": _ps, "kill": _kill, "ss": _ss}
