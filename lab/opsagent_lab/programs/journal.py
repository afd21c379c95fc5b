"""journalctl, and the programs that take a machine down: reboot, poweroff, shutdown."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from opsagent_lab import machines, units
from opsagent_lab.clock import stamp
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.programs.options import read
from opsagent_lab.programs.systemd import options
from opsagent_lab.state import JournalLine

_TAKES = {
    "-u": "unit", "--unit": "unit", "-n": "lines", "--lines": "lines", "-o": "output", "--output": "output", "-S": "since",
    "--since": "since", "-U": "until", "--until": "until", "-t": "ident", "-g": "grep", "--grep": "grep", "-p": "level",
    "--priority": "level",
}  # fmt: skip
_FLAGS = (
    "-k", "--dmesg", "--no-pager", "-b", "--boot", "-r", "--reverse", "-q", "--quiet", "-e", "-x", "--utc", "-a", "--all",
    "--no-full", "--no-hostname",
)  # fmt: skip
_LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_LEVEL = 6
"""Everything in the lab's journal is of level info."""


def _journalctl(process: Process) -> int:
    given, words = options(process, tuple(_TAKES), _FLAGS)
    if words:
        process.write_err(f"Failed to add match '{words[0]}': Invalid argument\n")
        return 1
    wish = {_TAKES[name]: values[-1] for name, values in given.items() if name in _TAKES}
    chosen = [line for line in _lines(process, given) if _wanted(process, line, wish)]
    count = wish.get("lines", "all")
    if count != "all":
        chosen = chosen[-int(count) :] if count.isdigit() and int(count) else []
    if {"-r", "--reverse"} & given.keys():
        chosen.reverse()
    for line in chosen:
        process.write_out(_shown(process, line, wish.get("output", "short")))
    if not chosen and not {"-q", "--quiet"} & given.keys():
        process.write_out("-- No entries --\n")
    return 0


def _lines(process: Process, given: dict[str, list[str]]) -> list[JournalLine]:
    if {"-k", "--dmesg"} & given.keys():
        machine = process.world.machine(process.host)
        return [JournalLine(machine.booted + at, "kernel", 0, text) for at, text in list(machine.dmesg)]
    return list(process.host.journal)


def _wanted(process: Process, line: JournalLine, wish: dict[str, str]) -> bool:
    if "unit" in wish and line.unit != units.name_of(wish["unit"]):
        return False
    if "ident" in wish and line.ident != wish["ident"]:
        return False
    if "grep" in wish and not re.search(wish["grep"], line.text, re.I if wish["grep"].islower() else 0):
        return False
    if "level" in wish and _level(process, wish["level"]) < _LEVEL:
        return False
    if "since" in wish and line.time < _moment(process, wish["since"]):
        return False
    return "until" not in wish or line.time <= _moment(process, wish["until"])


def _level(process: Process, text: str) -> int:
    if text in _LEVELS:
        return _LEVELS.index(text)
    if text.isdigit() and int(text) < len(_LEVELS):
        return int(text)
    process.write_err(f"Unknown log level {text}\n")
    raise Exit(1)


def _moment(process: Process, text: str) -> float:
    """`2025-11-30 09:00:00`, `@epoch`, `-10min`, `10 min ago`, `today`, `now`."""
    if text in ("now", "today"):
        return process.now if text == "now" else process.now // 86400 * 86400
    match = re.fullmatch(r"-?(\d+) ?([a-z]+?)s?( ago)?", text)
    if match and match.group(2) in _UNITS and (text.startswith("-") or match.group(3)):
        return process.now - int(match.group(1)) * _UNITS[match.group(2)]
    try:
        if text.startswith("@"):
            return float(text[1:])
        return datetime.fromisoformat(text.removesuffix(" UTC")).replace(tzinfo=UTC).timestamp()
    except ValueError as problem:
        process.write_err(f"Failed to parse timestamp: {text}\n")
        raise Exit(1) from problem


def _shown(process: Process, line: JournalLine, form: str) -> str:
    if form == "cat":
        return f"{line.text}\n"
    if form not in ("short", "short-iso", "short-precise", "short-full"):
        process.write_err(f"Unknown output '{form}'.\n")
        raise Exit(1)
    when = stamp(line.time, "%Y-%m-%dT%H:%M:%S+0000" if form == "short-iso" else "%b %d %H:%M:%S")
    pid = f"[{line.pid}]" if line.pid else ""
    return f"{when} {process.host.hostname} {line.ident}{pid}: {line.text}\n"


def _reboot(process: Process) -> int:
    read(process, "f", "", {"force": "f", "reboot": "r", "no-wall": "w"})
    return machines.reboot(process)


def _poweroff(process: Process) -> int:
    read(process, "f", "", {"force": "f", "no-wall": "w"})
    return machines.power_off(process)


def _shutdown(process: Process) -> int:
    given = read(process, "rhPHck", "", {"reboot": "r", "poweroff": "P", "halt": "H", "no-wall": "w"})
    if given.operands[:1] not in ([], ["now"], ["+0"]):
        process.write_err(f"Shutdown scheduled for {given.operands[0]}, use 'shutdown -c' to cancel.\n")
        return 1  # nothing in the lab waits for that moment: say so
    if "c" in given:
        return 0
    return machines.reboot(process) if "r" in given else machines.power_off(process)


PROGRAMS: Registry = {"journalctl": _journalctl, "reboot": _reboot, "poweroff": _poweroff, "shutdown": _shutdown}
