"""A report in which every text is an attack: what a host or a model could send."""

from __future__ import annotations

from typing import Any

from opsagent.report.model import StatusReport

ATTACK = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
    "](javascript:alert(1)) ![x](http://127.0.0.1:9/x.png) `</code>` | cell |\n# heading\n\n<b>html</b>\n"
    "```\nfence\n```\n\x1b[2J\x1b]8;;http://evil\x07link\x1b]8;;\x07\x9b31m\r\x00\u202egnp.exe\u2066\u200b\u2028next"
)
LINE = "A" * 1_000_000
DECEIVING = [chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x200B, 0x200E, 0x2028, 0x2029, 0xFEFF,
             *range(0x202A, 0x202F), *range(0x2066, 0x206A)) if chr(code) not in "\n\t"]  # fmt: skip


def hostile(text: str, *, status: str = "failed", exit_code: int = 1) -> StatusReport:
    """A report with something in every field, and `text` wherever there is text."""
    said = {"text": text, "evidence": ["e1", text]}
    limits = {"max_running_requests": 4, "max_total_num_tokens": 1000, "context_len": 32768}
    data: dict[str, Any] = {
        "status": status, "exit_code": exit_code, "simulated": True, "run": text, "runbook": text, "lab": text,
        "model": text, "headline": text,
        "endpoint": {"url": text, "model_id": text, "api_key": text, "bind": text},
        "deployment": {"host": text, "model": text, "dtype": text, "gpus": [text], "sglang": text, "speculation": text,
                       "unit": text, "argv": [text, "--flag"], "env": {text: text}, "log": text, "started_by": text},
        "limits": [{"name": text, "value": 4, "predicted": 5, "interval": [1, 9], "bound_by": text, "evidence": ["e1"]}],
        "why": [said], "behaviours": [said], "failed": said,
        "budget": [{"label": text, "source": "logged", "whole_gib": 10.0, "evidence": ["e1"],
                    "segments": [{"term": term, "gib": 2.0} for term in ("weights", text, "free")]}],
        "frontier": [{"mark": text, "kind": kind, "change": {text: text}, "evidence": ["e1"], **limits}
                     for kind in ("chosen", "asked", "option")],
        "trade_offs": [{"to_get": text, "change": {text: text}, "limits": limits, "costs": text, "evidence": ["e1"]}],
        "predicted_logged": [{"name": text, "predicted": 1.0, "logged": 2.0, "evidence": ["e1"]}],
        "verification": [{"probe": text, "ok": False, "detail": text, "evidence": ["e1"]}],
        "noise": [{"text": text, "why_harmless": text, "evidence": ["e1"]}],
        "incidents": [{"cause": text, "what": text, "found_by": text, "remedy": {text: text}, "resolved": False,
                       "evidence": ["e1"]}],
        "changes": [{"host": text, "what": text, "before": text, "after": text, "evidence": ["e1"]}],
        "undo": text, "stop": text, "resume": text, "open": [text, f"{text} waits: opsagent approve a b"],
    }  # fmt: skip
    return StatusReport.model_validate(data)
