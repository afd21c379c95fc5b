"""Journals that no opsagent wrote: whole lines and a whole chain around data of any shape. One error each, no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsagent.journal import FileJournal
from opsagent.journal.format import encode
from opsagent.journal.runs import open_run
from opsagent.protocols import Event
from opsagent.verify import verify
from opsagent_tools.errors import TranscriptDamaged

STRANGE: list[tuple[str, dict[str, Any]]] = [
    ("run.started", {"run": "7f3a", "hosts": "kpro5"}),
    ("run.started", {"run": "7f3a", "runbook": ["migrate"]}),
    ("call.intent", {}),
    ("call.intent", {"call": {"id": 7}}),
    ("call.intent", {"call": {"id": "c1", "tool": "x", "args": {}}, "verdict": "R0"}),
    ("call.started", {"call": ["c1"]}),
    ("call.finished", {"call": "c1", "result": "done"}),
    ("model.response", {"message": ["hello"]}),
    ("redaction.applied", {"rules": {"token": "many"}}),
    ("bystanders", {"host": "kpro5", "seen": ["a server"]}),
]


@pytest.mark.parametrize(("kind", "data"), STRANGE)
def test_a_line_of_a_strangers_making_is_damage(tmp_path: Path, kind: str, data: dict[str, Any]) -> None:
    (tmp_path / "blobs").mkdir()
    event = Event(seq=1, ts="2026-12-01T00:00:00.000Z", type=kind, data=data, prev="")
    (tmp_path / "events.jsonl").write_bytes(encode(event) + b"\n")
    for read in (open_run, FileJournal.resume):
        with pytest.raises(TranscriptDamaged, match="line 1"):
            read(tmp_path)
    assert not verify(tmp_path).ok
    with pytest.raises(TranscriptDamaged):  # the lock was given back
        FileJournal.resume(tmp_path)
