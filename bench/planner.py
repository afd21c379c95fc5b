"""The planner's speed, and its answer beside those of hf-mem and accelerate, in one run.

`python -m bench.planner` times one estimate, and the frontier of 2,000 flag sets, on one core, also as ratios to
`python -c pass`. With `--peers PYTHON` (an environment with hf-mem, accelerate, torch and transformers:
`uv venv P && uv pip install --python P/bin/python hf-mem accelerate torch transformers`) the peers answer for the same
two models, from a hub on loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.hub import serve

from opsagent_tools.sglang.arguments import read_arguments
from opsagent_tools.sglang.case import assess, make_case
from opsagent_tools.sglang.frontier import explore
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.plan import Wish
from opsagent_tools.sglang.planner import plan

ROOT = Path(__file__).parent.parent
MODELS = ROOT / "tests" / "data" / "planner" / "models"
FLAGS = [
    "--tp", "2", "--context-length", "32768", "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1",
    "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "2", "--mamba-scheduler-strategy", "extra_buffer",
]  # fmt: skip
CARDS = GpuFacts("RTX A6000", 49140, 2)
SETS = 2000
HF_MEM = """
import importlib, inspect, sys
run, cli = (importlib.import_module(f"hf_mem.{name}") for name in ("run", "cli"))
source = inspect.getsource(run).replace("https://huggingface.co", sys.argv.pop(1))
exec(compile(source, run.__file__, "exec"), run.__dict__)
for name in list(cli.__dict__):
    if callable(run.__dict__.get(name)):
        cli.__dict__[name] = run.__dict__[name]
sys.argv[0] = "hf-mem"
cli.main()
"""
"""hf-mem asks huggingface.co by name: the same code with another address."""


def config_of(model: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((MODELS / model / "config.json").read_text())
    return value


def process_ms(*words: str, times: int = 5) -> float:
    """Median wall time of a process, milliseconds."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run([sys.executable, *words], check=False, capture_output=True)
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken)


def estimate_ms(times: int = 50) -> float:
    """One whole estimate after import, nothing remembered: the model is read anew each time."""
    config, taken = config_of("qwen3.6-27b"), []
    for _ in range(times):
        began = time.perf_counter()
        plan(config, gpus=CARDS, flags=FLAGS, sglang="0.5.11", free_gib=46.8, advise=False)
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken)


def frontier_s() -> tuple[int, float]:
    """(flag sets, seconds) of searches until 2,000 sets were assessed; each search starts with nothing remembered."""
    config, sets = config_of("qwen3.6-27b"), 0
    began = time.perf_counter()
    while sets < SETS:
        case = make_case(config, gpus=CARDS, sglang="0.5.11", env={}, free_gib=46.8)
        values = read_arguments(FLAGS, case).values
        wish = Wish(context=32768, concurrency=4)
        sets += explore(case, values, assess(case, values), wish, frozenset()).assessed
    return sets, time.perf_counter() - began


def run() -> dict[str, float]:
    """The planner's figures and the ratios that matter."""
    empty = process_ms("-c", "pass")
    sets, seconds = frontier_s()
    one = estimate_ms()
    command = ["-c", "from opsagent.cli import main; main()", "plan", "--json", "--model", str(MODELS / "qwen3.6-27b")]
    whole = process_ms(*command, "--gpu", "RTX A6000:49140", "--num-gpus", "2", "--", *FLAGS, times=3)
    return {
        "python -c pass ms": empty,
        "one estimate ms": one,
        "one estimate / python -c pass": one / empty,
        f"frontier of {SETS} sets s": seconds * SETS / sets,
        "frontier / python -c pass": 1000 * seconds * SETS / sets / empty,
        "opsagent plan, process ms": whole,
    }


def peers(python: str) -> list[tuple[str, str, str]]:
    """(model, who, answer) for weights and KV per token, from one hub on loopback."""
    rows = []
    with serve(MODELS, ("qwen3-8b", "qwen3.6-27b")) as address, tempfile.TemporaryDirectory() as home:
        env = {
            **os.environ,
            "HF_ENDPOINT": address,
            "HF_HOME": home,
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONWARNINGS": "ignore",
        }
        for model in ("qwen3-8b", "qwen3.6-27b"):
            rows.append((model, "opsagent", ours(model)))
            where = [f"org/{model}"]
            options = ["--experimental", "--max-model-len", "32768", "--json-output"]
            rows.append((model, "hf-mem", answer([python, "-c", HF_MEM, address, "--model-id", *where, *options], env)))
            options = ["--library_name", "transformers", "--dtypes", "float16"]
            rows.append(
                (model, "accelerate", answer([python, "-m", "accelerate.commands.estimate", *where, *options], env))
            )
    return rows


def ours(model: str) -> str:
    began = time.perf_counter()
    found = plan(config_of(model), gpus=GpuFacts("NVIDIA H200", 143771), sglang="0.5.11", advise=False)
    gib, limits = found.per_gpu_gib, found.limits
    assert gib is not None
    assert limits is not None
    case = make_case(config_of(model), gpus=GpuFacts("NVIDIA H200", 143771), sglang="0.5.11", env={})
    budget = assess(case, {}).budget
    assert budget is not None
    price = budget.price.cell
    return (
        f"weights {gib.weights:.2f} GiB, KV {price:,.0f} B/token, {limits.max_total_num_tokens:,} tokens, "
        f"{limits.max_running_requests} requests   {1000 * (time.perf_counter() - began):.0f} ms"
    )


def answer(command: list[str], env: dict[str, str]) -> str:
    """What a peer prints, or why it does not."""
    began = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return f"fails: {last[:160]}"
    return f"{figures(done.stdout)}   {took:.1f} s"


def figures(text: str) -> str:
    """The numbers of a peer's answer on one line."""
    try:
        value = json.loads(text)
    except ValueError:
        rows = [" ".join(row.split("|")).split() for row in text.splitlines() if re.search(r"\d [GM]B", row)]
        return "; ".join(" ".join(row) for row in rows) or text.strip()[-160:]
    return json.dumps(value)[:400]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of an environment with hf-mem and accelerate")
    asked = parser.parse_args()
    for what, value in run().items():
        print(f"{what:<34} {value:>12,.2f}")
    if asked.peers:
        for model, who, said in peers(asked.peers):
            print(f"{model:<14} {who:<11} {said}")


if __name__ == "__main__":
    main()
