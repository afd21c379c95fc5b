"""Running model servers: who serves what, with which arguments, under whose supervision."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel

from opsagent_tools.arg_types import option
from opsagent_tools.host import Host, argv
from opsagent_tools.machine.network import Listener
from opsagent_tools.machine.processes import Process, exact_argv, masked, tree, unit_of

ENGINES = {
    "sglang": re.compile(r"sglang[./]launch_server|\bsglang serve\b|\bsglang\.srt\b"),
    "vllm": re.compile(r"vllm[./]entrypoints|\bvllm serve\b"),
    "llama.cpp": re.compile(r"\bllama-server\b"),
    "ollama": re.compile(r"\bollama serve\b"),
}
PORTS = {"sglang": 30000, "vllm": 8000, "llama.cpp": 8080, "ollama": 11434}
CHILD = re.compile(r"^sglang::")


class Server(BaseModel):
    """One model server. `argv` is exact and masked: with it the server can be started again elsewhere."""

    engine: str
    pid: int
    started: str = ""
    """Start time of the pid, clock ticks since boot: give it to stop_server with the pid."""
    user: str
    age_s: int
    argv: list[str]
    flags: list[str] = []
    """The engine's own flags, without where the model is and where it listens: what a planner reads."""
    model: str | None = None
    served_model_name: str | None = None
    port: int | None = None
    bind: str | None = None
    listening: bool = False
    """Whether one of its processes owns that port: false while it loads, or when it failed to bind."""
    unit: str = ""
    """Its systemd unit, `session-….scope` for somebody's terminal, '' when not known."""
    container: int | None = None
    """The container that it runs in, when it is seen from the parent."""
    processes: list[int] = []
    supervised: bool = False
    """Whether a service would start it again."""


def read_servers(
    host: Host, processes: Sequence[Process], listeners: Sequence[Listener]
) -> tuple[list[Server], list[int]]:
    """The servers, and orphans: SGLang's worker processes whose server is gone (they hold GPU memory)."""
    mains = [(engine, p) for p in processes if (engine := engine_of(p.argv)) and not _nested(p, processes)]
    servers = [_server(host, engine, p, processes, listeners) for engine, p in mains]
    owned = {pid for server in servers for pid in server.processes}
    orphans = [
        p.pid for p in processes if p.argv and CHILD.match(p.argv[0]) and p.pid not in owned and p.state[0] != "Z"
    ]
    return servers, orphans


def engine_of(words: Sequence[str]) -> str | None:
    """Which engine a command line starts; shells and greps that only mention one do not count."""
    program = words[0].rpartition("/")[2] if words else ""
    if program in (
        "grep",
        "sh",
        "bash",
        "ssh",
        "tail",
        "vim",
        "less",
        "sudo",
        "timeout",
        "systemd-run",
        "pct",
        "lxc-attach",
    ):
        return None
    text = " ".join(words)
    if "# opsagent probe: " in text:  # the supervisor of a job has the job's words in its own
        return None
    return next((engine for engine, pattern in ENGINES.items() if pattern.search(text)), None)


def _nested(process: Process, processes: Sequence[Process]) -> bool:
    """Whether its parent is the same server (a worker that kept its command line)."""
    parent = next((p for p in processes if p.pid == process.parent), None)
    return parent is not None and engine_of(parent.argv) is not None


ELSEWHERE = ("--model-path", "--model", "-m", "--host", "--port", "-p", "--api-key", "--admin-api-key")


def own_flags(words: Sequence[str]) -> list[str]:
    """The flags of a server's command line, without those that say where: model, address, port, keys."""
    start = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    kept: list[str] = []
    skip = False
    for word in words[start:]:
        if word.startswith("-"):
            skip = word.partition("=")[0] in ELSEWHERE
        if not skip:
            kept.append(word)
    return kept


def _server(
    host: Host, engine: str, process: Process, processes: Sequence[Process], listeners: Sequence[Listener]
) -> Server:
    words, pids = exact_argv(host, process), tree(processes, process.pid)
    mine = [one for one in listeners if one.pid in pids]
    said = option(words, "--port", "-p")
    port = int(said) if said and said.isdigit() else PORTS[engine]
    served = [one for one in mine if one.port == port] or []
    cgroup = argv(host, "cat", f"/proc/{process.pid}/cgroup", timeout_s=20)
    unit, container = unit_of(cgroup.stdout) if cgroup.ok else ("", None)
    stat = argv(host, "cat", f"/proc/{process.pid}/stat", timeout_s=20)
    fields = stat.stdout.rpartition(")")[2].split() if stat.ok else []
    return Server(
        engine=engine, pid=process.pid, started=fields[19] if len(fields) > 19 else "", user=process.user,
        age_s=process.age_s, argv=masked(words), flags=own_flags(masked(words)),
        model=option(words, "--model-path", "--model", "-m"),
        served_model_name=option(words, "--served-model-name"), port=port,
        bind=served[0].address if served else option(words, "--host"), listening=bool(served), unit=unit,
        container=container, processes=pids, supervised=unit.endswith(".service") and not unit.startswith("opsagent-"),
    )  # fmt: skip
