"""Run folders for the viewer's tests: a long one, and one that a hostile host and a hostile model wrote."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsagent.journal.format import digest, encode
from opsagent.journal.reader import BLOBS, EVENTS, blob_path
from opsagent.protocols import Event

LINE = "[2026-03-01 10:00:00 TP0] Decode batch. #running-req: 4, #token: 1234, token usage: 0.12, cuda graph: True\n"
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE = (
    f"{SCRIPT} </script> ]]> <!-- --> &lt; {{{{ 7*7 }}}} \x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 "
    "\u202egnp.exe\u202c zero\u200bwidth \u3164 \x00 \x07 javascript:alert(1)"
)


@dataclass
class Stranger:
    """Writes a run folder by the format alone: quickly, and without our journal's care for what is in it."""

    folder: Path
    lines: list[bytes] = field(default_factory=list)

    def append(self, type: str, /, **data: Any) -> None:
        second = len(self.lines) // 10
        ts = f"2026-03-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"
        prev = digest(self.lines[-1]) if self.lines else ""
        self.lines.append(encode(Event(len(self.lines) + 1, ts, type, data, prev)))

    @property
    def seq(self) -> int:
        return len(self.lines)

    def blob(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        (self.folder / BLOBS).mkdir(parents=True, exist_ok=True)
        blob_path(self.folder, sha256).write_bytes(data)
        return sha256

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / EVENTS).write_bytes(b"\n".join(self.lines) + b"\n")


def long_run(folder: Path, events: int = 20_000) -> int:
    """A run of an LLM with that many events, in steps of a hundred calls. Returns the number of calls."""
    with Stranger(folder) as journal:
        journal.append(
            "run.started",
            run="long",
            runbook={"name": "watch", "title": "Watch", "path": "watch.md"},
            model="some-model",
            hosts={"target": "gpu4"},
            params={"hours": 12},
            simulated=True,
            lab="story",
        )
        number = 0
        while journal.seq < events - 12:
            if number % 100 == 0:
                if number:
                    journal.append(
                        "step.check",
                        step=f"watch-{number // 100}",
                        expr="log.healthy",
                        ok=True,
                        values={},
                        evidence=[f"e{journal.seq}"],
                        first=True,
                        last=True,
                    )
                    journal.append("step.left", step=f"watch-{number // 100}")
                journal.append("step.entered", step=f"watch-{number // 100 + 1}", title=f"Hour {number // 100 + 1}")
            number += 1
            one_call(
                journal, f"c{number}", "needle in a haystack" if number == events // 12 else f"all quiet at {number}"
            )
        while journal.seq < events - 1:
            journal.append("note", why="nothing more to do")
        journal.append("run.finished", status="verified", exit_code=0)
    claims = [{"text": f"hour {n} was quiet", "evidence": [f"e{n * 50 + 7}"]} for n in range(1, 100)]
    (folder / "report.json").write_text(json.dumps({"headline": "A long watch", "behaviours": claims}))
    return number


def one_call(journal: Stranger, ident: str, summary: str) -> None:
    """Six events: what was asked, answered, intended, approved, begun and found."""
    args: dict[str, Any] = {"path": "/var/log/sglang/server.log", "lines": 40}
    message = {
        "role": "tool",
        "tool_call_id": ident,
        "content": json.dumps({"ok": True, "summary": summary, "text": LINE}),
    }
    journal.append("model.request", model="some-model", keep=2, new=[message])
    journal.append(
        "model.response",
        model="some-model",
        message={"role": "assistant", "content": f"Look again ({ident})."},
        calls=[{"id": ident, "name": "tail_log", "arguments": json.dumps(args)}],
        reasoning="I should look. " * 12,
        usage={"prompt_tokens": 9000, "completion_tokens": 60},
        finish="tool_calls",
        notes=[],
    )
    journal.append(
        "call.intent",
        call={"id": ident, "tool": "tail_log", "host": "gpu4", "args": args, "step": "s"},
        bind="log",
        verdict={"tier": "R0", "reasons": [{"rule": "tail_log.read", "text": "tail_log reads"}]},
    )
    journal.append("approval.decided", call=ident, answer="approve", by="policy", scope="once")
    journal.append("call.started", call=ident)
    journal.append(
        "call.finished",
        call=ident,
        ok=True,
        duration_s=0.4,
        result={"summary": summary, "lines": [LINE] * 8, "limits": {"max_total_num_tokens": 126646}},
    )


def hostile_run(folder: Path) -> None:
    """Everything that comes from hosts, models and runbooks tries to get out, to hide, or to be too big."""
    with Stranger(folder) as journal:
        log = journal.blob(f"{HOSTILE}\r\n10%\r20%\r\x1b[32mdone\x1b[0m\n".encode() + b"\xff\xfe")
        huge = journal.blob(b"y" * 3_000_000)
        journal.append(
            "run.started",
            run=f"x{SCRIPT}",
            model=HOSTILE,
            hosts={HOSTILE: HOSTILE},
            params={HOSTILE: [HOSTILE]},
            runbook={"name": HOSTILE, "title": HOSTILE, "path": HOSTILE, "sha256": log},
            simulated=True,
            lab=HOSTILE,
        )
        journal.append("step.entered", step=HOSTILE, title=HOSTILE)
        journal.append("model.request", model="m", keep=0, new=[{"role": HOSTILE, "content": HOSTILE}, HOSTILE])
        journal.append(
            "model.response",
            model="m",
            message={"role": "assistant", "content": HOSTILE + "\n" + HOSTILE},
            reasoning=HOSTILE,
            calls=[{"id": "1", "name": HOSTILE, "arguments": HOSTILE}],
        )
        journal.append(
            "call.intent",
            call={"id": "c1", "tool": HOSTILE, "host": HOSTILE, "args": {HOSTILE: HOSTILE}, "step": "s"},
            verdict={"tier": "R3", "reasons": [{"rule": HOSTILE, "text": HOSTILE}]},
        )
        journal.append("approval.requested", call="c1", tier=HOSTILE)
        journal.append("approval.decided", call="c1", answer="approve", by=HOSTILE, reason=HOSTILE)
        journal.append("call.started", call="c1")
        journal.append(
            "call.finished",
            call="c1",
            ok=True,
            duration_s=1,
            output={HOSTILE: log, "huge": huge},
            result={"summary": HOSTILE, "line": "z" * 1_000_000, "wide": {str(n): n for n in range(5_000)}},
        )
        journal.append(
            "step.check", step=HOSTILE, expr=HOSTILE, ok=False, values={HOSTILE: HOSTILE}, evidence=[HOSTILE, "e9"]
        )
        journal.append("remedy.applied", step=HOSTILE, cause=HOSTILE, change={HOSTILE: HOSTILE}, evidence=["e10"])
        journal.append("note", nest=nested(60))
        journal.append("error", what=HOSTILE, where=HOSTILE, hint=HOSTILE)
        journal.append("run.finished", status="failed", exit_code=1, failed={"text": HOSTILE, "evidence": ["e13"]})
    claims = [{"text": HOSTILE, "evidence": ["e9", "e99", 'e1"><script>', "e٣"]}, {"text": SCRIPT, "evidence": []}]
    report = {
        "headline": HOSTILE,
        "failed": claims[0],
        "why": claims,
        HOSTILE: claims,
        "limits": [{"evidence": ["e9"]}],
    }
    (folder / "report.json").write_text(json.dumps(report))


def nested(depth: int) -> Any:
    value: Any = HOSTILE
    for _level in range(depth):
        value = {"in": [value]}
    return value
