"""How many events a second the journal writes, reads, folds and verifies, and how fast secrets are found in a log."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from opsagent.journal import FileJournal, fold, read_log
from opsagent.journal.disk import Disk
from opsagent.redact import Redactor
from opsagent.verify import verify

CALLS = 2500
LINE = "[2026-03-01 10:00:00 TP0] Decode batch. #running-req: 4, #token: 1234, token usage: 0.12, cuda graph: True\n"


def write(folder: Path, calls: int = CALLS) -> int:
    """A run of many calls, without waiting for the disk. Returns the number of events."""
    with FileJournal.create(
        folder, Redactor({"KEY": "a-known-secret-0123"}), disk=Disk(fsync=lambda _fd: None)
    ) as journal:
        journal.append("run.started", run="b", params={})
        for number in range(calls):
            call = {"id": f"c{number}", "tool": "tail_log", "args": {"path": "/var/log/x.log"}, "step": "s"}
            journal.append("call.intent", call=call, bind="log", verdict={"tier": "R0", "reasons": [], "binding": "b"})
            journal.append("approval.decided", call=f"c{number}", answer="approve", by="policy", binding="b")
            journal.append("call.started", call=f"c{number}")
            journal.append("call.finished", call=f"c{number}", ok=True, result={"lines": [LINE] * 10}, duration_s=0.1)
        return journal.state.seq


def rate(count: float, work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def run() -> dict[str, float]:
    """Events a second (and megabytes a second for `redact`)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        count = 4 * CALLS + 1
        log = (LINE * 20_000).encode()
        return {
            "append (no flush)": rate(count, lambda: write(folder)),
            "read": rate(count, lambda: read_log(folder)),
            "fold": rate(count, partial(fold, read_log(folder).events)),
            "verify": rate(count, lambda: verify(folder)),
            "redact MB/s": rate(len(log) / 1e6, lambda: Redactor().data(log)),
        }


if __name__ == "__main__":
    for what, value in run().items():
        print(f"{what:<20} {value:>12,.1f}")
