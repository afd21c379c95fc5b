"""systemctl and systemd-run."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable

from opsagent_lab import machines, units
from opsagent_lab.clock import stamp
from opsagent_lab.processes import NotRunnable, which
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.state import Unit

_NO_SYSTEMD = (
    "System has not been booted with systemd as init system (PID 1). Can't operate.\nFailed to connect to bus: Host "
    "is down\n"
)
_SIGNALS = {"TERM": 15, "KILL": 9, "INT": 2, "HUP": 1, "QUIT": 3}


def options(process: Process, takes: tuple[str, ...], flags: tuple[str, ...]) -> tuple[dict[str, list[str]], list[str]]:
    """Options with a value (`takes`) and without (`flags`), and the other words. Ends with 1 for an unknown option."""
    given: dict[str, list[str]] = {}
    words: list[str] = []
    todo = list(process.args)
    while todo:
        word = todo.pop(0)
        if word == "--":
            words += todo
            break
        name, equals, value = word.partition("=")
        if name in takes:
            given.setdefault(name, []).append(value if equals else (todo.pop(0) if todo else ""))
        elif word.startswith("-") and len(word) > 1:
            short = [f"-{letter}" for letter in word[1:]] if not word.startswith("--") else [name]
            if word[:2] in takes and not word.startswith("--"):
                given.setdefault(word[:2], []).append(word[2:].removeprefix("="))
                continue
            for item in short:
                if item not in flags:
                    complaint = (
                        f"unrecognized option '{item}'" if item.startswith("--") else f"invalid option -- '{item[1:]}'"
                    )
                    process.write_err(f"{process.name}: {complaint}\n")
                    raise Exit(1)
                given.setdefault(item, []).append(value)
        else:
            words.append(word)
    return given, words


def _systemctl(process: Process) -> int:
    if not process.host.systemd:
        process.write_err(_NO_SYSTEMD)
        return 1
    takes = (
        "-p",
        "--property",
        "-s",
        "--signal",
        "-n",
        "--lines",
        "-t",
        "--type",
        "--state",
        "-o",
        "--kill-whom",
        "--kill-who",
    )
    flags = (
        "--no-block", "--now", "--value", "--all", "-a", "--quiet", "-q", "--no-pager", "--no-legend", "--plain", "--full",
        "-l", "--no-ask-password", "--failed", "--force", "-f", "--wait", "--system",
    )  # fmt: skip
    given, words = options(process, takes, flags)
    verb, names = (words[0], words[1:]) if words else ("list-units", [])
    if verb in ("daemon-reload", "daemon-reexec"):
        return 0
    if verb in ("reboot", "poweroff", "halt"):
        return machines.reboot(process) if verb == "reboot" else machines.power_off(process)
    if verb == "is-system-running":
        process.write_out("running\n")
        return 0
    if verb == "list-units":
        return _list(process)
    verbs = {
        "show": _show, "kill": _kill, "stop": _stop, "start": _start, "restart": _restart, "status": _status, "cat": _cat,
        "is-active": _is_active, "is-enabled": _is_enabled, "enable": _enable, "disable": _disable, "reset-failed": _reset,
    }  # fmt: skip
    handler = verbs.get(verb)
    if handler is None:
        process.write_err(f"Unknown command verb {verb}.\n")
        return 1
    code = 0
    for name in names:
        code = max(code, handler(process, units.name_of(name), given))
    return code


def _missing(process: Process, name: str, verb: str, code: int = 5) -> int:
    process.write_err(f"Failed to {verb} {name}: Unit {name} not loaded.\n")
    return code


def _fields(process: Process, name: str) -> dict[str, str]:
    unit = process.host.units.get(name) or Unit(name, load="not-found")
    return {
        "Id": name, "Names": name, "LoadState": unit.load, "ActiveState": unit.active, "SubState": unit.sub,
        "Result": unit.result, "MainPID": str(unit.main_pid), "ExecMainPID": str(unit.exec_main_pid),
        "ExecMainCode": str(unit.exec_main_code), "ExecMainStatus": str(unit.exec_main_status),
        "NRestarts": str(unit.restarts),
        "Description": unit.description or " ".join(unit.argv), "UnitFileState": "enabled" if unit.enabled else "disabled",
        "FragmentPath": "" if unit.transient else f"/etc/systemd/system/{name}", "Transient": "yes" if unit.transient
        else "no",
        "MemoryCurrent": "[not set]", "WorkingDirectory": unit.cwd, "ControlGroup": f"/system.slice/{name}",
        "ActiveEnterTimestamp": stamp(unit.started, "%a %Y-%m-%d %H:%M:%S UTC") if unit.started else "",
    }  # fmt: skip


def _show(process: Process, name: str, given: dict[str, list[str]]) -> int:
    fields = _fields(process, name)
    wanted = [n for v in given.get("-p", []) + given.get("--property", []) for n in v.split(",")]
    for key in wanted or list(fields):
        if key in fields:
            process.write_out(fields[key] + "\n" if "--value" in given else f"{key}={fields[key]}\n")
    return 0


def _kill(process: Process, name: str, given: dict[str, list[str]]) -> int:
    unit = process.host.units.get(name)
    if unit is None or not units.members(process.host, unit):
        return _missing(process, name, "kill unit", 1)
    word = (given.get("-s", []) + given.get("--signal", []) or ["SIGTERM"])[-1].upper().removeprefix("SIG")
    for sim in units.members(process.host, unit):
        process.world.signal(process.host, sim.pid, _SIGNALS.get(word, 15))
    return 0


def _stop(process: Process, name: str, given: dict[str, list[str]]) -> int:
    unit = process.host.units.get(name)
    if unit is None:
        return _missing(process, name, "stop")
    units.stop(process.world, process.host, unit)
    process.world.count(process.host, f"stop {name}")
    if "--no-block" in given:
        return 0
    left = float(unit.properties.get("TimeoutStopSec", "90").rstrip("s") or 90)
    while units.members(process.host, unit) and left > 0:
        process.sleep(1.0)
        left -= 1
    units.kill_all(process.world, process.host, unit)
    return 0


def _start(process: Process, name: str, _given: dict[str, list[str]]) -> int:
    unit = process.host.units.get(name)
    if unit is None or not unit.argv:
        process.write_err(f"Failed to start {name}: Unit {name} not found.\n")
        return 5
    if unit.active != "active":
        units.start(process.world, process.host, unit)
    return 0


def _restart(process: Process, name: str, given: dict[str, list[str]]) -> int:
    if name in process.host.units:
        _stop(process, name, {k: v for k, v in given.items() if k != "--no-block"})
    return _start(process, name, given)


def _status(process: Process, name: str, _given: dict[str, list[str]]) -> int:
    unit = process.host.units.get(name)
    if unit is None:
        process.write_err(f"Unit {name} could not be found.\n")
        return 4
    process.write_out(
        f"● {name} - {unit.description or name}\n     Loaded: {unit.load} (/etc/systemd/system/{name}; "
        f"{'enabled' if unit.enabled else 'disabled'})\n     Active: {unit.active} ({unit.sub})\n   Main PID: "
        f"{unit.main_pid}\n"
    )
    return 0 if unit.active == "active" else 3


def _cat(process: Process, name: str, _given: dict[str, list[str]]) -> int:
    unit = process.host.units.get(name)
    if unit is None:
        process.write_err(f"No files found for {name}.\n")
        return 1
    extra = "".join(f"{k}={v}\n" for k, v in unit.properties.items())
    process.write_out(f"# /etc/systemd/system/{name}\n[Service]\nExecStart={shlex.join(unit.argv)}\n{extra}")
    return 0


def _is_active(process: Process, name: str, _given: dict[str, list[str]]) -> int:
    unit = process.host.units.get(name)
    process.write_out((unit.active if unit else "inactive") + "\n")
    return 0 if unit and unit.active == "active" else 3


def _is_enabled(process: Process, name: str, _given: dict[str, list[str]]) -> int:
    unit = process.host.units.get(name)
    process.write_out("enabled\n" if unit and unit.enabled else "disabled\n")
    return 0 if unit and unit.enabled else 1


def _enable(process: Process, name: str, given: dict[str, list[str]]) -> int:
    return _set_enabled(process, name, True, _start if "--now" in given else None, given)


def _disable(process: Process, name: str, given: dict[str, list[str]]) -> int:
    return _set_enabled(process, name, False, _stop if "--now" in given else None, given)


def _set_enabled(
    process: Process, name: str, enabled: bool, then: Callable[..., int] | None, given: dict[str, list[str]]
) -> int:
    unit = process.host.units.get(name)
    if unit is None:
        verb = "enable" if enabled else "disable"
        process.write_err(f"Failed to {verb} unit: Unit file {name} does not exist.\n")
        return 1
    unit.enabled = enabled
    return then(process, name, given) if then else 0


def _reset(process: Process, name: str, _given: dict[str, list[str]]) -> int:
    unit = process.host.units.get(name)
    if unit is None:
        return _missing(process, name, "reset failed state of unit", 1)
    if unit.active == "failed":
        unit.active, unit.sub = "inactive", "dead"
        if unit.transient:
            process.host.units.pop(name, None)
    return 0


def _list(process: Process) -> int:
    process.write_out("  UNIT LOAD ACTIVE SUB DESCRIPTION\n")
    for name, unit in sorted(process.host.units.items()):
        process.write_out(f"  {name} {unit.load} {unit.active} {unit.sub} {unit.description or name}\n")
    return 0


_RUN_OPTIONS = (
    "--unit", "-u", "--property", "-p", "--setenv", "-E", "--description", "--working-directory", "--quiet", "-q",
    "--no-ask-password", "--collect", "-G", "--no-block", "--remain-after-exit", "-r", "--slice", "--uid", "--gid", "--nice",
    "--system", "--same-dir", "-d", "--service-type",
)  # fmt: skip


def _systemd_run(process: Process) -> int:
    if not process.host.systemd:
        process.write_err(_NO_SYSTEMD)
        return 1
    args, options = list(process.args), []
    while args and args[0].startswith("-"):
        word = args.pop(0)
        if word == "--":
            break
        options.append(word)
        if (
            word in ("-p", "-E", "-u", "--unit", "--property", "--setenv", "--description", "--working-directory")
            and args
        ):
            options[-1] = f"{word}={args.pop(0)}"
        elif word.partition("=")[0] not in _RUN_OPTIONS:
            kind = f"unrecognized option '{word}'" if word.startswith("--") else f"invalid option -- '{word[1:2]}'"
            process.write_err(f"systemd-run: {kind}\n")
            return 1
    if not args:
        process.write_err("systemd-run: Command line to execute required.\n")
        return 1
    unit = _unit(process, options, args)
    if unit.name in process.host.units:
        process.write_err(
            f"Failed to start transient service unit: Unit {unit.name} was already loaded or has a fragment file.\n"
        )
        return 1
    try:
        unit.argv[0] = which(process.world, process.host, args[0], unit.env, unit.cwd)[0]
    except NotRunnable as problem:
        process.write_err(f"Failed to find executable {args[0]}: {problem.words}\n")
        return 1
    process.host.units[unit.name] = unit
    units.start(process.world, process.host, unit)
    if not any(o in ("--quiet", "-q") for o in options):
        process.write_err(f"Running as unit: {unit.name}; invocation ID: {unit.invocation}\n")
    return 0


def _unit(process: Process, options: list[str], argv: list[str]) -> Unit:
    unit = Unit(
        "",
        argv=list(argv),
        transient=True,
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    for option in options:
        name, _, value = option.partition("=")
        if name in ("--unit", "-u"):
            unit.name = units.name_of(value)
        elif name in ("--property", "-p"):
            key, _, setting = value.partition("=")
            unit.properties[key] = setting
        elif name in ("--setenv", "-E"):
            key, _, setting = value.partition("=")
            unit.env[key] = setting
        elif name == "--description":
            unit.description = value
        elif name == "--working-directory":
            unit.cwd = value
    unit.cwd = unit.properties.get("WorkingDirectory", unit.cwd)
    unit.env |= _environment(process, unit.properties.get("EnvironmentFile", ""))
    seed = f"{process.now}{argv}".encode()
    unit.invocation = hashlib.sha256(seed).hexdigest()[:32]
    unit.name = unit.name or f"run-r{unit.invocation}.service"
    return unit


def _environment(process: Process, path: str) -> dict[str, str]:
    path = path.removeprefix("-")
    if not path or not process.files.exists(path):
        return {}
    out = {}
    for line in process.files.text(path).splitlines():
        name, given, value = line.partition("=")
        if given:
            out[name] = (shlex.split(value) or [""])[0]
    return out


PROGRAMS: Registry = {"systemctl": _systemctl, "systemd-run": _systemd_run}
