"""Journals that no opsagent wrote: whole lines and a whole chain around data of any shape. One error each, no traceback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from opsagent.cli import cli
from opsagent.journal import FileJournal
from opsagent.journal.format import encode
from opsagent.journal.lock import take
from opsagent.journal.runs import open_run
from opsagent.protocols import Event
from opsagent.report.write import _put
from opsagent.verify import verify
from opsagent_tools.errors import InputError, JournalError, TranscriptDamaged

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


@pytest.mark.parametrize("name", ["events.jsonl", "lock"])
def test_nothing_is_written_through_a_link_in_a_run_folder(tmp_path: Path, name: str) -> None:
    """A folder that somebody sent: what looks like a torn line may be the only line of a file of ours."""
    mine, folder = tmp_path / "token", tmp_path / "run"
    mine.write_text("one line without an end")
    with FileJournal.create(folder) as journal:
        journal.append("run.started", run="7f3a")
    (folder / name).unlink()
    (folder / name).symlink_to(mine)
    with pytest.raises(JournalError):
        FileJournal.resume(folder)
    assert mine.read_text() == "one line without an end"


def test_a_report_is_not_written_through_a_link_either(tmp_path: Path) -> None:
    mine = tmp_path / "token"
    mine.write_text("mine")
    (tmp_path / ".report.json.part").symlink_to(mine)
    _put(tmp_path / "report.json", "{}")
    assert (tmp_path / "report.json").read_text() == "{}"
    assert mine.read_text() == "mine"
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o600


def test_a_lock_is_given_back_although_a_forked_child_still_has_the_file(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    lock = take(tmp_path)
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent has looked
        os._exit(0)
    os.close(reading)
    try:
        lock.release()
        take(tmp_path).release()
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_a_report_that_cannot_be_written_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(JournalError, match="cannot write the report"):
        _put(tmp_path / "report.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_state_folder_that_is_none_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/x")
    with pytest.raises(InputError, match="no folder"):
        cli.main(["runs"], standalone_mode=False)
