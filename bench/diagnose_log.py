"""A huge log: rate and memory of `diagnose` beside `grep -F -f` of the same signatures' words, in one run.

    python bench/diagnose_log.py [--mb 1024]

The log is a serving log (batches, requests, health checks; every line has other numbers) with one failure near its end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINES = (
    "[2026-11-30 21:{m:02d}:{s:02d} TP0] Decode batch, #running-req: {a}, #token: {n}, token usage: 0.{a:02d}, "
    ""
    "cuda graph: True, gen throughput (token/s): {n}.12, #queue-req: {b}",
    "[2026-11-30 21:{m:02d}:{s:02d} TP0] Prefill batch, #new-seq: {b}, #new-token: {n}, #cached-token: {n}, "
    "token usage: 0.{a:02d}, #running-req: {a}, #queue-req: {b}",
    '[2026-11-30 21:{m:02d}:{s:02d}] INFO:     10.0.0.{a}:{n} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    '[2026-11-30 21:{m:02d}:{s:02d}] INFO:     127.0.0.1:{n} - "GET /health HTTP/1.1" 200 OK',
    "[2026-11-30 21:{m:02d}:{s:02d}] Finish: obj=GenerateReqInput(rid='{n:08x}{a}{b}'), out_tokens={n}",
)
FAILURE = (
    "[2026-11-30 22:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/opt/sglang/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 2900, in event_loop_overlap\n'
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
)
CHILD = """
import json, resource, sys, time
from opsagent_tools.sglang.diagnosis import diagnose
def chunks(path):
    with open(path, "rb") as stream:
        while data := stream.read(1 << 20):
            yield data
began = time.perf_counter()
found = diagnose(chunks(sys.argv[1]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"s": time.perf_counter() - began, "peak_mib": peak, "cause": found.cause}))
"""


def write_log(path: Path, megabytes: int) -> int:
    """A serving log of about that size; returns its bytes."""
    target, written, i = megabytes << 20, 0, 0
    with path.open("w", encoding="utf-8") as stream:
        stream.write("[2026-11-30 21:00:00] The server is fired up and ready to roll!\n")
        while written < target:
            block = []
            for _ in range(20_000):
                i += 1
                n = (i * 2654435761) % 1_000_003
                block.append(LINES[i % len(LINES)].format(m=i % 60, s=n % 60, a=n % 97, b=n % 7, n=n))
            text = "\n".join(block) + "\n"
            written += stream.write(text)
        stream.write(FAILURE)
    return path.stat().st_size


def main() -> int:
    import json

    from opsagent_tools.sglang.diagnosis.signature import knowledge

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1024)
    size_mb = parser.parse_args().mb
    with tempfile.TemporaryDirectory() as folder:
        log, words = Path(folder) / "big.log", Path(folder) / "words"
        size = write_log(log, size_mb) / 2**20
        words.write_text("\n".join(sorted({a for p in knowledge().patterns for a in p.anchors})) + "\n", "utf-8")
        done = subprocess.run([sys.executable, "-c", CHILD, str(log)], capture_output=True, text=True, check=True)
        ours = json.loads(done.stdout)
        began = time.perf_counter()
        grep = subprocess.run(
            ["grep", "-i", "-F", "-c", "-f", str(words), str(log)], capture_output=True, text=True, check=False
        )
        took = time.perf_counter() - began
        count = len(words.read_text("utf-8").splitlines())
        print(f"log            {size:8.0f} MiB, {count} words of {len(knowledge().patterns)} patterns")
        rate, peak = size / ours["s"], ours["peak_mib"]
        print(f"diagnose       {ours['s']:8.1f} s  {rate:8.1f} MiB/s  peak {peak:.0f} MiB  → {ours['cause']}")
        print(f"grep -i -F -f  {took:8.1f} s  {size / took:8.1f} MiB/s  {grep.stdout.strip()} lines")
    ok = ours["peak_mib"] < 200 and ours["cause"] == "cuda-illegal-memory-access"
    print("ok" if ok else "FAILED: more than 200 MiB, or another cause")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
