"""The tool `tail_log`: a bounded window of a server's log on the host, as facts and with a diagnosis."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field

from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.host import Host, Stream, argv
from opsagent_tools.logfile import look
from opsagent_tools.sglang.diagnosis import Diagnosis, diagnose
from opsagent_tools.sglang.log import Facts, facts
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

HEAD = 1 << 19
"""Bytes of the beginning that are always read: arguments, version and the phases of the start stand there."""
OLDER = 5
TURNED = b"# opsagent: this log goes on from "
WORKING = re.compile(rb"(Prefill|Decode) batch|\" [1-5]\d\d (OK|[A-Z])")
"""Lines that a server writes only after its start."""
SHOWN_ARGS = (
    "model_path", "served_model_name", "host", "port", "tp_size", "pp_size", "dp_size", "context_length",
    "mem_fraction_static", "max_running_requests", "max_total_tokens", "chunked_prefill_size", "kv_cache_dtype",
    "attention_backend", "quantization", "load_format", "speculative_algorithm", "speculative_num_steps",
    "speculative_eagle_topk", "speculative_num_draft_tokens", "mamba_scheduler_strategy", "mamba_radix_cache_strategy",
    "disable_radix_cache", "disable_cuda_graph", "cuda_graph_max_bs", "reasoning_parser", "tool_call_parser", "random_seed",
)  # fmt: skip


class TailLogArgs(Args):
    path: str = Field(default="", pattern=r"^(/.*)?$", description="Absolute path of the log.")
    server: dict[str, Any] | None = Field(default=None, description="Result of launch_sglang, instead of a path.")
    unit: str = Field(
        default="", pattern=r"^[\w@.:-]*$", description="systemd unit whose journal is read, if there is no file."
    )
    lines: int = Field(default=40, ge=0, le=400, description="How many of the last lines to return as text.")
    max_bytes: int = Field(
        default=4 << 20, ge=65536, le=64 << 20, description="Window: the head and this much of the tail."
    )
    sglang: str | None = Field(default=None, description="Version that wrote the log, when known.")
    follow_s: float = Field(default=0, ge=0, description="Seconds to follow a start until it is ready or has failed.")


class TailLogResult(Result):
    state: Literal["ready", "failed", "starting", "unknown"]
    verdict: Literal["failed", "healthy", "unknown"]
    phase: str
    diagnosis: Diagnosis
    facts: Facts
    """Arguments are the ones that matter; the whole line is in the log."""
    text: str
    """The last lines."""
    path: str
    bytes_total: int
    bytes_read: int
    """Less than `bytes_total` when the middle was left out."""

    @property
    def failed(self) -> bool:
        return self.verdict == "failed"


def run(host: Host, args: TailLogArgs, ctx: Context | None = None) -> TailLogResult:
    ctx = ctx or Context()
    path = args.path or str((args.server or {}).get("log") or "")
    if not path and not args.unit:
        raise InputError("no log to read", where="tail_log", hint="give `path`, `server` (a launch result) or `unit`")
    began, seen_phase = ctx.clock.now(), ""
    while True:
        data, total = _window(host, path, args)
        found = _judge(data, total, path or f"unit {args.unit}", args)
        waited = ctx.clock.now() - began
        if found.phase != seen_phase or args.follow_s:
            seen_phase = found.phase
            ctx.progress(Progress(f"{found.phase}: {_last(data)}", round(waited, 1), args.follow_s or None, "s"))
        if found.state != "starting" or waited >= args.follow_s or ctx.stopped():
            ctx.keep("log", data)
            return found
        ctx.clock.sleep(2.0)


def _window(host: Host, path: str, args: TailLogArgs) -> tuple[bytes, int]:
    """Head and tail of the log, and its whole size. The cut middle is marked by a line of ours.

    A log that was turned over while its server ran has its start, with arguments, memory and limits, in an older file.
    """
    data, total = _file(host, path, args) if path else _journal(host, args)
    begun = _start_of(host, path) if path and _goes_on(data) else b""
    return begun + data, total


def _goes_on(data: bytes) -> bool:
    """Whether this is no log from its start: our own mark, or a server at work of which no start is seen."""
    head = data[:HEAD]
    return head.startswith(TURNED) or (b"server_args=" not in head and WORKING.search(head) is not None)


def _start_of(host: Host, path: str) -> bytes:
    """The head of the nearest older file that holds a start; b'' when none does."""
    for number in range(1, OLDER + 1):
        size, _inode = look(host, f"{path}.{number}")
        if size is None:
            return b""
        head = _bytes(host, "head", "-c", str(HEAD), f"{path}.{number}")
        if b"server_args=" in head:
            return head.rpartition(b"\n")[0] + b"\n# opsagent: that was %s.%d\n" % (path.encode(), number)
    return b""


def _file(host: Host, path: str, args: TailLogArgs) -> tuple[bytes, int]:
    done = argv(host, "stat", "-L", "-c", "%s", path, timeout_s=20)
    if not done.ok:
        raise ToolFailed(
            f"cannot read the log: {done.stderr.strip() or 'no such file'}",
            where=path,
            hint="check the path on the host",
        )
    total = int(done.stdout.strip() or 0)
    if total <= HEAD + args.max_bytes:
        return _bytes(host, "cat", path), total
    head = _bytes(host, "head", "-c", str(HEAD), path)
    tail = _bytes(host, "tail", "-c", str(args.max_bytes), path)
    gap = total - len(head) - len(tail)
    return head.rpartition(b"\n")[0] + b"\n# opsagent: %d bytes left out\n" % gap + tail.partition(b"\n")[2], total


def _journal(host: Host, args: TailLogArgs) -> tuple[bytes, int]:
    data = _bytes(host, "journalctl", "-u", args.unit, "--no-pager", "-o", "cat", "-n", "20000")
    return data[-args.max_bytes :], len(data)


def _bytes(host: Host, *words: str) -> bytes:
    """The exact output of a command."""
    parts: list[bytes] = []

    def keep(stream: Stream, chunk: bytes) -> None:
        if stream == "stdout":
            parts.append(chunk)

    done = argv(host, *words, timeout_s=120, sink=keep)
    if not done.ok:
        raise ToolFailed(f"cannot read the log: {done.stderr.strip() or done.exit_code}", where=words[-1])
    return b"".join(parts) if parts else done.stdout.encode()


def _judge(data: bytes, total: int, path: str, args: TailLogArgs) -> TailLogResult:
    known, found = facts(data), diagnose(data, version=args.sglang)
    state: Literal["ready", "failed", "starting", "unknown"]
    if found.verdict == "failed":
        state = "failed"
    elif found.verdict == "healthy":
        state = "ready"
    else:
        state = "unknown" if found.evidence else "starting"
    known.args = {k: known.args[k] for k in SHOWN_ARGS if k in known.args}
    known.memory = known.memory[-40:]
    text = data.decode("utf-8", "replace").splitlines()[-args.lines :] if args.lines else []
    return TailLogResult(
        state=state, verdict=found.verdict, cause=found.cause if found.verdict == "failed" else None, phase=found.phase,
        diagnosis=found, facts=known, text="\n".join(line[:2000] for line in text), path=path, bytes_total=total,
        bytes_read=len(data), summary=_summary(found),
    )  # fmt: skip


def _summary(found: Diagnosis) -> str:
    if found.verdict == "failed" and found.evidence:
        return f"{found.cause}: line {found.evidence[0].line}: {found.evidence[0].text[:160]}"
    return found.summary


def _last(data: bytes) -> str:
    lines = data[-2000:].decode("utf-8", "replace").replace("\r", "\n").splitlines()
    return next((line.strip()[:160] for line in reversed(lines) if line.strip()), "nothing yet")


TOOL = Tool(
    name="tail_log",
    description=(
        "Read a bounded window of a server's log on the host: phases with durations, memory, limits, the last lines, "
        "and a diagnosis: verdict, cause, the lines that prove it, harmless noise, and a fix. `follow_s` follows a start."
    ),
    args=TailLogArgs,
    result=TailLogResult,
    run=run,
    polls=True,
)
