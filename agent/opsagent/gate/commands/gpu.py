"""nvidia-smi: queries are reads; clocks and power are R2; resets, MIG and ECC are nobody's to change."""

from __future__ import annotations

import re

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import apply
from opsagent.gate.commands.tables import rules
from opsagent.gate.trace import Trace

FORBIDDEN = re.compile(r"-(r|-gpu-reset|mig|-multi-instance-gpu|e|-ecc-config|p|-reset-ecc-errors)(=.*)?")


def nvidia_smi(argv: tuple[str, ...], t: Trace) -> None:
    words = list(argv[1:])
    operators(words, t)
    if words and not words[0].startswith("-"):
        _subcommand(words, t)
        return
    parsed = rules("nvidia-smi").parse(words)
    apply(parsed.given, "nvidia-smi", t)
    for each in [*parsed.unknown, *words]:
        if FORBIDDEN.fullmatch(each) or re.fullmatch(r"-(e|p|mig)=?[01]?", each):
            t.say("X", "gpu.reset", f"nvidia-smi {each}: resets, MIG and ECC are not ours to change")
    for each in parsed.unknown:
        t.say("R3", "nvidia-smi.unknown-option", f"nvidia-smi {each} is not an option that we know")
    for each in parsed.operands:
        if each.isdigit() and parsed.has("-l", "-lms", "--loop", "--loop-ms"):
            continue
        t.say("R2", "nvidia-smi.operand", f"{each!r} is not expected")
    t.say("R0", "read", "nvidia-smi tells")


READS = {
    "topo": r"(-m|-p2p|-mp|-c|-n|-g|-i|-h|-gpu|--matrix|[rwnapd0-9,]+)",
    "nvlink": r"(-s|-c|-p|-e|-g|-gt|-i|-l|-R|-cs?|-h|--status|[0-9,a-z]+)",
    "dmon": r"(-[sdcoihfg]|[a-zA-Z0-9,]+|--[a-z-]+)", "pmon": r"(-[sdcoih]|[a-zA-Z0-9,]+)", "daemon": r"(?!)",
    "vgpu": r"(-q|-s|-c|-v|-i|-u|-p|[0-9]+)",
    "pci": r"(-i|-gErrCnt|-gCnt|-h|[0-9:.a-f]+)", "clocks": r"(-q|-h)", "encodersessions": r".*",
    "fbcsessions": r".*", "stats": r".*",
    "mig": r"(-lgi|-lgip|-lgipp|-lci|-lcip|-lcipp|-i|-gi|[0-9,]+)", "conf-compute": r"(-f|-q|-d|-e|-gc|-grs|-h)",
    "compute-policy": r"(-l|--list|-h)",
    "boost-slider": r"(-l|--list|-h)", "power-hint": r"(-l|-h)", "c2c": r"(-s|-i|[0-9]+)", "gpm": r"(-g|-i|-h)",
    "rusd": r"(?!)", "power-smoothing": r"(?!)", "prm": r"(?!)",
}  # fmt: skip


def _subcommand(words: list[str], t: Trace) -> None:
    name, rest = words[0], words[1:]
    pattern = READS.get(name)
    if pattern is not None and all(re.fullmatch(pattern, each) for each in rest):
        t.say("R0", "read", f"nvidia-smi {name} tells")
    elif name in ("mig", "drain"):
        t.say("X", "gpu.reset", f"nvidia-smi {name} takes GPUs apart or away")
    else:
        t.say("R3", "nvidia-smi.change", f"nvidia-smi {' '.join(words[:2])} changes how GPUs run")
    if "-f" in rest and name in ("dmon", "pmon"):
        t.say("R2", "nvidia-smi.file", "writes a file")


COMMANDS: dict[str, Checker] = {"nvidia-smi": nvidia_smi}
