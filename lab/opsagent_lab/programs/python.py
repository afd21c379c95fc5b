"""`python` and `python3`: our probes, import and version checks, `-m sglang.…`, `-m pip`, `-m venv`.

Anything else is refused honestly, never an empty success.
"""

from __future__ import annotations

import json
from typing import Any

from opsagent_lab.engine import oneliners, venvs
from opsagent_lab.engine.launcher import launch_server
from opsagent_lab.engine.probing import PROBES, ProbeError
from opsagent_lab.program import Process, Registry
from opsagent_lab.programs import packages

_MARK = "# opsagent probe: "
_CANNOT = (
    "lab: the simulated python cannot run this (it knows opsagent's probes, import and version checks, "
    "-m sglang.launch_server, -m pip and -m venv)\n"
)


def python(process: Process) -> int:
    """The interpreter of the environment that the executable lies in."""
    args = list(process.args)
    while args and args[0] in ("-u", "-B", "-I", "-E", "-s", "-S", "-X", "-W"):
        flag = args.pop(0)
        if flag in ("-X", "-W") and args:
            args.pop(0)
    if not args:
        return _refuse(process)
    head = args.pop(0)
    if head in ("-V", "--version"):
        process.write_out(f"Python {venvs.of(process)[1].python}\n")
        return 0
    if head == "-c" and args:
        return _code(process, args[0], args[1:])
    if head == "-m" and args:
        return _module(process, args[0], args[1:])
    if head.startswith("-") and head != "-":
        process.write_err(
            f"Unknown option: {head[:2]}\nusage: {process.argv[0]} [option] ... [-c cmd | -m mod | file | -] [arg] ...\n"
            f"Try `{process.name} -h' for more information.\n"
        )
        return 2
    if head == "-":
        return _code(process, process.stdin.read().decode("utf-8", "replace"), args)
    if not process.files.exists(process.path(head)):
        process.write_err(
            f"{process.argv[0]}: can't open file '{process.path(head)}': [Errno 2] No such file or directory\n"
        )
        return 2
    return _code(process, process.files.text(process.path(head)), args)


def _refuse(process: Process) -> int:
    process.write_err(_CANNOT)
    return 70


def _code(process: Process, code: str, args: list[str]) -> int:
    first = code.lstrip().split("\n", 1)[0]
    if first.startswith(_MARK):
        return _probe(process, first.removeprefix(_MARK).strip(), args)
    try:
        return oneliners.run(process, code)
    except oneliners.Unknown:
        return _refuse(process)


def _probe(process: Process, name: str, args: list[str]) -> int:
    known = PROBES.get(name)
    if known is None:
        process.write_err(f"lab: no simulated answer for probe {name}\n")
        return 70
    argument: Any = json.loads(args[0]) if args else {}
    process.sleep(0.05)
    try:
        answer = known(process, argument)
    except ProbeError as problem:
        process.write_err(f"{problem}\n")
        return problem.code
    except OSError as problem:
        answer = {"error": f"{problem.filename or name}: {problem.strerror}"}
    process.write_out(json.dumps(answer) + "\n")
    return 0


def _module(process: Process, name: str, args: list[str]) -> int:
    if name == "sglang.launch_server":
        return launch_server(process, args)
    if name == "pip":
        return packages.pip_module(process, args)
    if name == "venv":
        return packages.make_venv(process, args)
    if name.split(".")[0] == "sglang" and venvs.version(venvs.of(process)[1], "sglang"):
        return _refuse(process)
    process.write_err(f"{process.argv[0]}: No module named {name}\n")
    return 1


def sglang(process: Process) -> int:
    """The `sglang` command of an environment."""
    args = process.args
    if args[:1] == ["serve"]:
        return launch_server(process, args[1:])
    if args[:1] == ["version"]:
        process.write_out(f"sglang version: {venvs.version(venvs.of(process)[1], 'sglang')}\n")
        return 0
    process.write_err(
        "usage: sglang [-h] {serve,generate,version} ...\n"
        f"sglang: error: argument subcommand: invalid choice: {(args or [''])[0]!r} (choose from 'serve', "
        "'generate', 'version')\n"
    )
    return 2


PROGRAMS: Registry = {"python": python, "python3": python, "sglang": sglang}
