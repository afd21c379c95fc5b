"""What is owed on a real GPU, in one go and under nine minutes: `python -m bench.real_gpu --python PY --model DIR`.

Each case is made with the product on this machine (`local`), checked, and cleaned up; at its end nothing of it may run or
hold memory. The summary is one JSON object. A case that the time does not allow is not run, and said so.

    parser     a wrong parser name is named by SGLang's own words, and costs no load           runbook
    busy       a busy port is named before anything is loaded                                  runbook
    full       a launch that does not fit, because another process holds the memory, is named  tools
    killed     a scheduler that is killed while it loads; nothing of the launch is left        tools
    occupied   the limits with a part of the memory occupied: predicted against logged         tools
    tp2        the same on two cards; left out where there is one                              tools
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsagent_tools import estimate_vram, launch_sglang, stop_server
from opsagent_tools.arg_types import flag_words
from opsagent_tools.clock import Clock, FastClock
from opsagent_tools.errors import OpsError
from opsagent_tools.estimate_vram import EstimateVramArgs
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.launch_sglang import LaunchSglangArgs, LaunchSglangResult
from opsagent_tools.machine.gpus import read_gpus, used_mib
from opsagent_tools.machine.processes import read_processes
from opsagent_tools.stop_server import StopServerArgs
from opsagent_tools.tool import Context, Progress

FLAGS = "--attention-backend triton --sampling-backend pytorch --grammar-backend none --mem-fraction-static 0.85"
LIMIT_S = 530.0
TOKENS = 0.01
"""How far the tokens may be from the prediction."""
HOLD = """
import sys, time, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(max(0, free - int(sys.argv[1]) * 2**20), dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(900)
"""
OPSAGENT = "from opsagent.cli import main; main()"
NEEDS_S = {"parser": 60.0, "busy": 60.0, "full": 60.0, "killed": 60.0, "occupied": 110.0, "tp2": 130.0}


@dataclass(frozen=True)
class Bench:
    """What every case needs. `leave_mib` is what the occupied card keeps free."""

    python: str
    model: str
    runbook: str
    flags: tuple[str, ...]
    env: dict[str, str]
    port: int = 30000
    leave_mib: int = 48_000
    clock: Clock = field(default_factory=FastClock)
    host: LocalHost = field(default_factory=LocalHost)

    def ctx(self, call: str, progress: Callable[[Progress], None] = lambda _p: None) -> Context:
        return Context(f"gpu{os.getpid()}", call, clock=self.clock, progress=progress)

    def launch(
        self, call: str, *, progress: Callable[[Progress], None] = lambda _p: None, **more: Any
    ) -> LaunchSglangResult:
        args: dict[str, Any] = {"model": self.model, "flags": list(self.flags), "python": self.python, "env": self.env,
                                "port": self.port, "load_format": "dummy", "preflight": False}  # fmt: skip
        return launch_sglang.run(self.host, LaunchSglangArgs.model_validate(args | more), self.ctx(call, progress))

    def stop(self, server: LaunchSglangResult, call: str) -> dict[str, Any]:
        args = StopServerArgs(server=server.model_dump(mode="json"), grace_s=20)
        return stop_server.run(self.host, args, self.ctx(call)).model_dump(mode="json")


Found = dict[str, Any]
"""Facts of a case: name to value; `ok` is whether it ended as it should."""


@contextlib.contextmanager
def held(bench: Bench, leave_mib: int) -> Iterator[int]:
    """Another process holds the card's memory but `leave_mib`; its pid."""
    holder = subprocess.Popen(
        [bench.python, "-c", HOLD, str(leave_mib)], stdout=subprocess.PIPE, text=True, env={**os.environ, **bench.env}
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline().strip() != "held":
            raise RuntimeError("the card's memory could not be held")
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()


def runbook(bench: Bench, *words: str) -> dict[str, Any]:
    """The report of `opsagent run runbooks/launch.md` here, with these flags and options."""
    with tempfile.TemporaryDirectory(prefix="opsagent-gpu-") as folder:
        given = {"model_dir": bench.model, "python": bench.python, "port": bench.port, "load_format": "dummy",
                 "env": json.dumps(bench.env)}  # fmt: skip
        argv = ["run", bench.runbook, "--host", "target=local", "--json", "--out", f"{folder}/run", *words]
        argv += [part for name, value in given.items() for part in ("-p", f"{name}={value}")]
        env = {**os.environ, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        done = subprocess.run(
            [sys.executable, "-c", OPSAGENT, *argv], capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    if not done.stdout.strip():
        raise RuntimeError(done.stderr[-500:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def causes(report: dict[str, Any]) -> list[str]:
    return [str(item["cause"]) for item in report["incidents"]]


def parser(bench: Bench) -> Found:
    wish = " ".join((*bench.flags, "--tool-call-parser", "qwen3_codr"))
    report = runbook(bench, "-p", f"wish={wish}", "--approve", "never")
    named = "invalid-flag-value" in causes(report)
    return {
        "ok": named and report["weight_loads"] == 0,
        "causes": causes(report),
        "weight_loads": report["weight_loads"],
    }


def busy(bench: Bench) -> Found:
    with socket.create_server(("127.0.0.1", bench.port)):
        report = runbook(bench, "-p", f"wish={' '.join(bench.flags)}", "--approve", "declared")
    named = "port-in-use" in causes(report)
    return {"ok": named and report["weight_loads"] == 0, "causes": causes(report), "status": report["status"]}


def full(bench: Bench) -> Found:
    with held(bench, 4_000):
        got = bench.launch("full")
    good = got.state == "failed" and got.cause in ("oom-weight-load", "gpu-memory-occupied")
    return {"ok": good, "cause": got.cause, "words": got.words[:200], "exit_code": got.exit_code}


def killed(bench: Bench) -> Found:
    """The scheduler of this launch is killed once the weights are being read; another process of that name is not ours."""
    other = subprocess.Popen(["sglang::scheduler", "300"], executable="/bin/sleep")
    struck: list[int] = []

    def strike(progress: Progress) -> None:
        if not struck and progress.text.startswith(("weights", "pools", "backends", "graphs")):
            mine = [p.pid for p in read_processes(bench.host) if p.argv and p.argv[0].startswith("sglang::scheduler")
                    and p.pid != other.pid]  # fmt: skip
            for pid in mine:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            struck.extend(mine)

    try:
        got = bench.launch("killed", progress=strike)
        spared = other.poll() is None
    finally:
        other.kill()
        other.wait()
    good = bool(struck) and got.cause == "worker-sigkilled" and got.gpu_memory_back is not False and spared
    return {
        "ok": good,
        "killed": struck,
        "cause": got.cause,
        "gpu_memory_back": got.gpu_memory_back,
        "other_spared": spared,
    }


def occupied(bench: Bench) -> Found:
    with held(bench, bench.leave_mib):
        return predicted(bench, "occupied", list(bench.flags))


def tp2(bench: Bench) -> Found:
    return predicted(bench, "tp2", [*bench.flags, "--tp-size", "2", "--disable-custom-all-reduce"])


def predicted(bench: Bench, call: str, flags: list[str]) -> Found:
    """Predict, launch, compare: tokens within one percent, requests exact."""
    wanted = EstimateVramArgs(model=bench.model, flags=flags, python=bench.python, env=bench.env)
    plan = estimate_vram.run(bench.host, wanted, bench.ctx(f"{call}-plan"))
    if plan.limits is None:
        return {"ok": False, "failure": plan.failure, "words": plan.words}
    got = bench.launch(call, flags=flags, prediction=plan.model_dump(mode="json"))
    stopped = bench.stop(got, f"{call}-stop")
    want, have = plan.limits, got.limits
    near = have.max_total_num_tokens is not None and (
        abs(have.max_total_num_tokens - want.max_total_num_tokens) <= TOKENS * want.max_total_num_tokens
    )
    exact = have.max_running_requests == want.max_running_requests
    return {
        "ok": got.state == "ready" and near and exact and stopped["stopped"], "state": got.state, "cause": got.cause,
        "tokens": [want.max_total_num_tokens, have.max_total_num_tokens], "ready_s": got.ready_s,
        "requests": [want.max_running_requests, have.max_running_requests], "gpu_memory_back": stopped["gpu_memory_back"],
    }  # fmt: skip


CASES: dict[str, Callable[[Bench], Found]] = {
    "parser": parser, "busy": busy, "full": full, "killed": killed, "occupied": occupied, "tp2": tp2,
}  # fmt: skip


def left(bench: Bench, before: dict[int, int]) -> dict[str, Any]:
    """What should not be there any more: SGLang's processes of ours, and memory of the cards (MiB above what was used)."""
    words = [p for p in read_processes(bench.host) if p.argv and p.state[0] not in "ZX"]
    mine = [p.pid for p in words if "sglang.launch_server" in p.argv and bench.model in p.argv]
    now = used_mib(bench.host) or {}
    return {"processes": mine, "mib": {c: u - before.get(c, 0) for c, u in now.items() if u > before.get(c, 0) + 1024}}


def measure(bench: Bench, names: Sequence[str], *, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Run the cases and sum up. A case that falls over is one that failed; the others are run all the same."""
    began = time.monotonic()
    _driver, cards = read_gpus(bench.host)
    cards = [card for card in cards if card.index is not None]
    before = used_mib(bench.host) or {}
    rows: list[dict[str, Any]] = []
    for name in names:
        spent = time.monotonic() - began
        if name == "tp2" and len(cards) < 2:
            rows.append({"case": name, "ok": None, "not_run": f"{len(cards)} card"})
            continue
        if spent + NEEDS_S[name] > limit_s:
            rows.append({"case": name, "ok": None, "not_run": f"{spent:.0f} s of {limit_s:.0f} are over"})
            continue
        started = time.monotonic()
        try:
            found = CASES[name](bench)
        except (OpsError, RuntimeError, OSError, ValueError) as error:
            found = {"ok": False, "error": f"{type(error).__name__}: {error}"[:500]}
        rest = left(bench, before)
        found["ok"] = found["ok"] and not rest["processes"] and not rest["mib"]
        rows.append({"case": name, **found, "left": rest, "seconds": round(time.monotonic() - started, 1)})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    made = [row for row in rows if row["ok"] is not None]
    return {
        "ok": bool(made) and all(row["ok"] for row in made), "run": len(made), "cards": [card.name for card in cards],
        "cases": rows, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--python", required=True, help="the serving environment's interpreter, absolute")
    options.add_argument(
        "--model", required=True, help="a model directory (its configuration and a tokenizer are enough)"
    )
    options.add_argument("--out", help="where the summary goes; standard output if left out")
    options.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="of the server")
    options.add_argument("--flags", default=FLAGS)
    options.add_argument("--port", type=int, default=30000)
    options.add_argument("--leave-mib", type=int, default=48_000, help="what the occupied card keeps free")
    options.add_argument("--runbook", default="runbooks/launch.md")
    options.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    options.add_argument("--limit-s", type=float, default=LIMIT_S)
    given = options.parse_args(argv)
    env = {name: value for name, _, value in (text.partition("=") for text in given.env)}
    bench = Bench(
        given.python, given.model, given.runbook, tuple(flag_words(given.flags)), env, given.port, given.leave_mib
    )
    watchdog = threading.Timer(given.limit_s + 30, lambda: os._exit(124))  # whatever hangs: the machine is lent
    watchdog.daemon = True
    watchdog.start()
    text = json.dumps(measure(bench, given.only, limit_s=given.limit_s), indent=1) + "\n"
    watchdog.cancel()
    if given.out:
        Path(given.out).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0 if json.loads(text)["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
