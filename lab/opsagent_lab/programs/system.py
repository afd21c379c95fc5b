"""Small programs that tell about the machine, and those that run others: uname, hostname, env, timeout, nohup, dmesg …"""

from __future__ import annotations

import posixpath

from opsagent_lab.clock import stamp
from opsagent_lab.processes import NotRunnable, which
from opsagent_lab.program import SIGHUP, SIGKILL, SIGTERM, Process, Registry
from opsagent_lab.programs.options import read

_SIGNALS = {"TERM": SIGTERM, "KILL": SIGKILL, "HUP": SIGHUP, "INT": 2, "QUIT": 3, "USR1": 10, "CONT": 18, "STOP": 19}


def _uname(process: Process) -> int:
    options = read(process, "asnrvmo", long={"all": "a", "kernel-release": "r", "nodename": "n", "machine": "m"})
    kernel = process.world.machine(process.host).kernel
    values = {
        "s": "Linux", "n": process.host.hostname, "r": kernel, "v": "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-4", "m": "x86_64",
        "o": "GNU/Linux",
    }  # fmt: skip
    chosen = list("snrvmo") if "a" in options else [k for k in "snrvmo" if k in options] or ["s"]
    process.write_out(" ".join(values[k] for k in chosen) + "\n")
    return 0


def _hostname(process: Process) -> int:
    options = read(process, "Ifs", long={"all-ip-addresses": "I", "fqdn": "f", "short": "s"})
    text = " ".join(process.host.addresses) + " " if "I" in options else process.host.hostname
    process.write_out(text + "\n")
    return 0


def _getconf(process: Process) -> int:
    values = {
        "GNU_LIBC_VERSION": f"glibc {process.host.glibc}",
        "_NPROCESSORS_ONLN": str(process.host.cpus),
        "PAGE_SIZE": "4096",
    }
    values |= {"_NPROCESSORS_CONF": str(process.host.cpus), "CLK_TCK": "100", "LONG_BIT": "64"}
    name = process.args[0] if process.args else ""
    if name not in values:
        process.write_err(f"getconf: Unrecognized variable `{name}'\n")
        return 2
    process.write_out(values[name] + "\n")
    return 0


def _nproc(process: Process) -> int:
    read(process, "", "", {"all": "a", "ignore=": "i"})
    process.write_out(f"{process.host.cpus}\n")
    return 0


def _id(process: Process) -> int:
    uid = 0 if process.user == "root" else 1000
    options = read(process, "ugnG")
    if "u" in options:
        process.write_out((process.user if "n" in options else str(uid)) + "\n")
    else:
        name = process.user
        process.write_out(f"uid={uid}({name}) gid={uid}({name}) groups={uid}({name})\n")
    return 0


def _whoami(process: Process) -> int:
    process.write_out(process.user + "\n")
    return 0


def _date(process: Process) -> int:
    options = read(
        process, "uR", "dI", {"utc": "u", "universal": "u", "date=": "d", "iso-8601?": "I", "rfc-3339=": "I"}
    )
    form = next((a[1:] for a in options.operands if a.startswith("+")), "")
    if (options.operands and not form) or "d" in options:
        return process.fail(f"invalid date '{options.last('d') or options.operands[0]}'")
    form = form or ("%Y-%m-%dT%H:%M:%S+00:00" if "I" in options else "%a %b %d %H:%M:%S UTC %Y")
    process.write_out(stamp(process.now, form.replace("%s", str(int(process.now)))) + "\n")
    return 0


def _sleep(process: Process) -> int:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    for word in process.args or [""]:
        number, unit = (word[:-1], word[-1]) if word[-1:] in units else (word, "s")
        try:
            process.sleep(float(number) * units[unit])
        except ValueError:
            return process.fail(f"invalid time interval '{word}'")
    return 0


def _env(process: Process) -> int:
    args, env = list(process.args), dict(process.env)
    options = read(process, "i", "u", {"ignore-environment": "i", "unset=": "u"}, code=125, intermixed=False)
    args, env = list(options.operands), {} if "i" in options else env
    for name in options.given.get("u", []):
        env.pop(name, None)
    while args and "=" in args[0]:
        name, _, value = args.pop(0).partition("=")
        env[name] = value
    if not args:
        process.write_out("".join(f"{k}={v}\n" for k, v in env.items()))
        return 0
    return _launch(process, args, env)


def _launch(process: Process, argv: list[str], env: dict[str, str]) -> int:
    try:
        which(process.world, process.host, argv[0], env, process.sim.cwd)
    except NotRunnable as problem:
        words = "No such file or directory" if problem.code == 127 else problem.words
        process.write_err(
            f"{process.name}: '{argv[0]}': {words}\n" if process.name == "env" else _failed(process, argv[0], words)
        )
        return problem.code
    return process.run(argv, env=env)


def _failed(process: Process, name: str, words: str) -> str:
    return f"{process.name}: failed to run command '{name}': {words}\n"


def _seconds(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    return float(text[:-1]) * units[text[-1]] if text[-1:] in units else float(text)


def _timeout(process: Process) -> int:
    options = read(process, "", "ks", {"kill-after=": "k", "signal=": "s", "foreground": "f", "preserve-status": "p"},
                   code=125, intermixed=False)  # fmt: skip
    if len(options.operands) < 2:
        process.write_err("timeout: missing operand\nTry 'timeout --help' for more information.\n")
        return 125
    limit, argv = _seconds(options.operands[0]), options.operands[1:]
    outer, before = process.alarm, process.slept
    if limit > 0:
        process.alarm = limit if outer is None else min(limit, outer)
        process.alarm_signal = _SIGNALS.get(options.last("s", "TERM").removeprefix("SIG"), SIGTERM)
    try:
        code = _launch(process, argv, process.env)
    finally:
        spent = process.slept - before
        process.alarm = None if outer is None else max(0.0, outer - spent)
    return 124 if limit > 0 and code in (143, 137, 124) and spent >= limit - 1e-6 else code


def _nohup(process: Process) -> int:
    process.on_signal(SIGHUP, lambda _s: None)
    return _launch(process, process.args, process.env)


def _setsid(process: Process) -> int:
    args = [a for a in process.args if a not in ("-f", "--fork", "-w", "--wait")]
    if "-f" in process.args or "--fork" in process.args:
        process.world.spawn(process.host, args, env=process.env, ppid=1, cgroup=process.sim.cgroup, cwd=process.sim.cwd)
        return 0
    process.sim.sid = process.sim.pgid = process.sim.pid
    return _launch(process, args, process.env)


def _which(process: Process) -> int:
    code = 0
    for name in process.args:
        try:
            process.write_out(which(process.world, process.host, name, process.env)[0] + "\n")
        except NotRunnable:
            code = 1
    return code


def _true(_process: Process) -> int:
    return 0


def _false(_process: Process) -> int:
    return 1


def _dmesg(process: Process) -> int:
    options = read(process, "TH", "l", {"ctime": "T", "level=": "l", "nopager": "P"})
    machine = process.world.machine(process.host)
    for at, text in list(machine.dmesg):
        head = stamp(machine.booted + at, "%a %b %d %H:%M:%S %Y") if "T" in options else f"{at:12.6f}"
        process.write_out(f"[{head}] {text}\n")
    return 0


def _uptime(process: Process) -> int:
    days = int((process.now - process.world.machine(process.host).booted) // 86400)
    process.write_out(f" {stamp(process.now, '%H:%M:%S')} up {days} days,  1 user,  load average: 0.42, 0.30, 0.21\n")
    return 0


def _ldd(process: Process) -> int:
    process.write_out(f"ldd (Debian GLIBC {process.host.glibc}-9+deb12u10) {process.host.glibc}\n")
    return 0


def _free(process: Process) -> int:
    long = {"bytes": "b", "kibi": "k", "mebi": "m", "gibi": "g", "human": "h", "total": "t", "wide": "w"}
    options = read(process, "bkmghtw", "sc", long)
    held = sum(p.rss_mib for p in list(process.host.processes.values()))
    total = process.host.memory_mib
    used = min(total, total // 16 + held)
    cache = (total - used) // 3
    unit = {"b": 1 << 20, "m": 1, "g": 1 / 1024}.get(next((k for k in "bmg" if k in options), "k"), 1024)
    row = [total, used, total - used - cache, 12, cache, total - used]
    cells = [f"{v / 1024:.1f}Gi" if "h" in options else str(int(v * unit)) for v in row]
    process.write_out("               total        used        free      shared  buff/cache   available\n")
    process.write_out("Mem:    " + "".join(f"{c:>12}" for c in cells) + f"\nSwap:   {0:>12}{0:>12}{0:>12}\n")
    return 0


def _ldconfig(process: Process) -> int:
    version = process.host.driver.user
    if version:
        process.write_out(f"\tlibnvidia-ml.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ml.so.{version}\n")
    process.write_out("\tlibc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6\n")
    return 0


def name_of(process: Process) -> str:
    return posixpath.basename(process.argv[0])


PROGRAMS: Registry = {
    "uname": _uname, "hostname": _hostname, "getconf": _getconf, "nproc": _nproc, "id": _id, "whoami": _whoami,
    "date": _date,
    "sleep": _sleep, "env": _env, "timeout": _timeout, "nohup": _nohup, "setsid": _setsid, "which": _which, "true": _true,
    "false": _false, "dmesg": _dmesg, "uptime": _uptime, "ldd": _ldd, "free": _free, "ldconfig": _ldconfig,
}  # fmt: skip
