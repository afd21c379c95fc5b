"""Tiers of the typed tools: here they come from types and resources, not from words of a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

from opsagent.call import Call
from opsagent.gate.guards import paths, places
from opsagent.gate.guards.servers import is_ours, named, port_allowed, process_words
from opsagent.gate.guards.variables import assign
from opsagent.gate.trace import Trace

READERS = ("read_config", "estimate_vram", "preflight", "curl_test", "tail_log", "inspect_host")
CONTROL = ("finish", "apply_remedy")
DRIVER_FILES = re.compile(r"/sys/bus/[^/]+/(drivers(_probe|_autoprobe)?(/.*)?|devices/[^/]+/(driver_override"
r"|driver/.*|remove|rescan|reset.*)|rescan)"
                          r"|/sys/.*/(bind|unbind|new_id|remove_id|driver_override|remove|rescan|reset"
                          r"|sriov_numvfs|authorized)")  # fmt: skip


def check(call: Call, t: Trace) -> None:
    """Classify a call of a typed tool; an unknown tool is R3."""
    if call.tool in READERS:
        _reader(call, t)
    elif call.tool in CONTROL:
        t.say("R0", "control", f"{call.tool} acts on the run only")
    elif call.tool == "ask_operator":
        t.say("R2", "control.ask", "asks the operator a question: only a person can answer it")
    elif call.tool in RULES:
        RULES[call.tool](call, t)
    else:
        t.say("R3", "tool.unknown", f"no tool {call.tool!r} is known to the gate")


def _reader(call: Call, t: Trace) -> None:
    """Typed reads: bounded, no state change; what they read must not be a secret."""
    t.say("R0", f"{call.tool}.read", f"{call.tool} reads")
    for key in ("path", "log", "file", "model"):
        value = call.args.get(key)
        if isinstance(value, str) and value.startswith(("/", "~", ".")):
            paths.read(t, value)
    _interpreter(call.args, t)
    url = call.args.get("url")
    if isinstance(url, str) and url:
        from opsagent.gate.guards.urls import fetch

        fetch(t, url)


def _interpreter(args: dict[str, Any], t: Trace) -> None:
    """`python` and `env` of the tools that import SGLang on the target: the tool runs what they name."""
    python = args.get("python")
    if isinstance(python, str) and python:
        from opsagent.gate.argv import check as check_argv

        check_argv((python, "--version"), t)
    env = args.get("env")
    if isinstance(env, dict):
        for name, value in env.items():
            assign(t, str(name), str(value))


def job_paths(args: dict[str, Any], t: Trace) -> None:
    """`log` and `cwd` of a supervised job."""
    for key in ("log",):
        value = args.get(key)
        if isinstance(value, str) and value:
            paths.write(t, value, what="logs to")


def _launch(call: Call, t: Trace) -> None:
    port = _integer(call.args.get("port"))
    _interpreter(call.args, t)
    job_paths(call.args, t)
    given = call.args.get("flags")
    flags = [str(flag) for flag in given] if isinstance(given, list) else shlex.split(str(given or ""))
    port = _flag_port(flags, port)
    _flags(flags, t)
    if not port_allowed(t, port):
        t.say("R2", "launch.port", f"port {port if port is not None else '(default)'} is not in an allowed range")
    else:
        owner = t.fact(f"port:{port}", f"port {port} is free")
        if isinstance(owner, dict) and not owner.get("free", False):
            t.say("R2", "launch.port-busy", f"port {port} is in use by {owner.get('owner') or 'somebody'}")
        gpus = t.fact("gpus", "no other process uses the GPUs")
        if isinstance(gpus, dict) and not gpus.get("free", False):
            t.say(
                "R2", "launch.gpus-busy", f"other processes use GPU {', '.join(map(str, gpus.get('busy', []))) or '?'}"
            )
        elif gpus is None or owner is None:
            t.say("R2", "launch.unknown", "whether port and GPUs are free is not known")
    t.say("R1", "launch.start", "starts a server in a unit of its own")


FLAG_CODE = re.compile(r"--(trust-remote-code|custom-[a-z-]*|load-plugin[a-z-]*|preferred-sampling-params"
r"|tool-server|model-impl|"
                       r"enable-custom-logit-processor|forward-hooks|checkpoint-engine.*|remote-instance.*"
                       r"|dist-init-addr|nccl-init-addr|nnodes).*|--config")  # fmt: skip
DESTROYS = "--delete-ckpt-after-loading"


def _spellings(name: str) -> set[str]:
    """The option as written, and what argparse of some version would take it for: any prefix that says enough."""
    from opsagent_tools.sglang.options import spelled

    return {name, *spelled(name)}


def _flag_port(flags: list[str], port: int | None) -> int | None:
    """A `--port` among the flags wins (argparse accepts `--por` too)."""
    for index, flag in enumerate(flags):
        name, equals, value = flag.partition("=")
        if name in ("--port", "--por", "--po"):
            port = _integer(value if equals else (flags[index + 1] if index + 1 < len(flags) else ""))
    return port


WRITTEN = re.compile(r"--.*(dump|storage|folder|export|record|output|save|log-dir|cache-dir|profil"
                     r"|trace-dir|offload-dir|download).*")  # fmt: skip
"""Flags of SGLang whose value is a place where the server writes."""


def _flags(flags: list[str], t: Trace) -> None:
    for flag, following in zip(flags, [*flags[1:], ""], strict=False):
        name, equals, value = flag.partition("=")
        place = value if equals else following
        if any(WRITTEN.fullmatch(each) for each in _spellings(name)) and place.startswith(("/", "~", ".")):
            paths.write(t, place, what=f"{name} lets the server write")
    for flag in flags:
        name = flag.partition("=")[0]
        names = _spellings(name)
        if DESTROYS in names:
            t.say("R3", "launch.deletes", f"{name} deletes the model's files once they are loaded")
        if any(FLAG_CODE.fullmatch(each) for each in names):
            what = "takes flags from a file" if "--config" in names else "runs code of the model or reaches other hosts"
            t.say("R2", "launch.flag", f"{name} {what}")


def _stop(call: Call, t: Trace) -> None:
    server = call.args.get("server") or call.args
    known = (
        {key: server.get(key) for key in ("unit", "pid", "port", "url") if server.get(key)}
        if isinstance(server, dict)
        else server
    )
    t.effect(f"stops {known or 'a server that is not named'}")
    if isinstance(server, dict) and isinstance(server.get("pid"), int):
        t.fact(f"pid:{server['pid']}", f"pid {server['pid']} is not ours")
        t.effect(f"ends {process_words(t, server['pid'])}")
    if call.rollback and call.declared and is_ours(t, server):
        t.say("R1", "stop.own", "stops the server that this run started")
    elif is_ours(t, server):
        t.say("R1", "stop.own", "stops a server that this run started")
    elif call.declared or named(t, server):
        t.say("R2", "stop.named", "stops a server that the runbook names, not started by this run")
    else:
        t.say("R3", "stop.foreign", "stops a server that neither this run started nor the runbook names")


def _write_file(call: Call, t: Trace) -> None:
    for key in ("path", "dest", "file"):
        value = call.args.get(key)
        if isinstance(value, str):
            paths.write(t, value)
            if not value.startswith("/"):
                t.say("R3", "path.relative", f"{value!r} is not absolute")
    mode = call.args.get("mode")
    text = str(mode).removeprefix("0o") if isinstance(mode, (str, int)) else ""
    number = int(text, 8) if re.fullmatch(r"[0-7]{3,5}", text) else None
    if number is not None and (number & 0o6000 or number & 0o002):
        t.say("R3", "write.mode", "setuid, setgid or world-writable")
    if not t.findings:
        t.say("R3", "write.no-path", "no path is given")


def _write_sysfs(call: Call, t: Trace) -> None:
    path = str(call.args.get("path", ""))
    for place in paths.resolved(t, path):
        if places.NEVER_WRITTEN.fullmatch(place):
            t.say("X", "path.never", f"writes {place}: nobody may")
        elif re.fullmatch(r"/sys/.*/(ecc|mig)[^/]*|/sys/.*/nvidia.*/reset", place):
            t.say("X", "gpu.reset", f"writes {place}")
        elif place.startswith("/proc/sys/"):
            t.say(
                "R3" if place.startswith(("/proc/sys/kernel", "/proc/sys/fs")) else "R2",
                "sysctl.write",
                f"writes {place}",
            )
        elif not place.startswith("/sys/"):
            t.say("R3", "sysfs.elsewhere", f"{place} is not under /sys")
        elif re.fullmatch(
            r"/sys/(power|block|fs|firmware)/.*|/sys/.*/(delete|cgroup\.kill)|/sys/devices/system/memory/.*", place
        ):
            t.say("R3", "sysfs.host", f"writes {place}: power, disks, memory or control groups")
        elif DRIVER_FILES.fullmatch(place):
            t.say("R3", "sysfs.driver", f"writes {place}: binds, unbinds or removes a device")
        else:
            t.say("R2", "sysfs.write", f"writes {place} (the old value is recorded)")
    paths.doubtful(t, path)


def _reboot(_call: Call, t: Trace) -> None:
    t.say("R3", "reboot", "reboots the host: everything on it stops")


SOURCES = (
    "python",
    "source",
    "from",
    "lock",
    "requirements",
    "copy_from",
    "base_python",
    "repo",
    "model",
    "endpoint",
    "revision",
)
DESTINATIONS = (
    "path",
    "dest",
    "dir",
    "directory",
    "local_dir",
    "venv",
    "target",
    "prefix",
    "into",
    "model_dir",
    "env_dir",
)


def _create(call: Call, t: Trace) -> None:
    """install_env and download_model: new folders under an allowed root."""
    found = False
    for key, value in call.args.items():
        if isinstance(value, str) and key not in SOURCES and (value.startswith(("/", "~", ".")) or key in DESTINATIONS):
            paths.write(t, value)
            found = True
        elif isinstance(value, str) and key in SOURCES and value.startswith("/"):
            paths.read(t, value)
    _interpreter(call.args, t)
    if not found:
        t.say("R2", "create.no-path", "where it writes is not said")
    t.say("R1", f"{call.tool}.create", f"{call.tool} makes a new folder and fetches pinned content")


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None


RULES: dict[str, Callable[[Call, Trace], None]] = {
    "launch_sglang": _launch, "stop_server": _stop, "write_file": _write_file, "write_sysfs": _write_sysfs,
    "reboot_host": _reboot, "install_env": _create, "download_model": _create,
}  # fmt: skip
