"""`verify` on run folders that somebody touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from replay.record import record

from opsagent.cli.verify import command
from opsagent.journal import FileJournal
from opsagent.verify import verify


@pytest.fixture
def run(tmp_path: Path) -> Path:
    record(tmp_path)
    return tmp_path


def test_an_untouched_run_is_intact(run: Path) -> None:
    found = verify(run)
    assert found.ok, found.findings
    assert found.events > 10
    assert found.blobs == 1
    assert CliRunner().invoke(command, [str(run)], standalone_mode=False).return_value == 0


def edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a changed event": (lambda run: edit(run / "events.jsonl", b'"goal":2', b'"goal":3'), "events.jsonl:2"),
    "a changed blob": (lambda run: edit(next((run / "blobs").iterdir()), b"# Count", b"# Dount"), "e1"),
    "a lost blob": (lambda run: next((run / "blobs").iterdir()).unlink(), "e1"),
    "a changed number in the report": (
        lambda run: edit(run / "report.json", b'"calls": 2', b'"calls": 3'),
        "report.json",
    ),
    "a changed status": (lambda run: edit(run / "report.json", b'"verified"', b'"failed"'), "report.json"),
    "a lost report": (lambda run: (run / "report.json").unlink(), "report.json"),
    "another text": (lambda run: edit(run / "report.md", b"#", b"##"), "report.md"),
    "a broken report": (lambda run: (run / "report.json").write_text("{"), "report.json"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_placed(run: Path, name: str) -> None:
    damage, where = DAMAGE[name]
    damage(run)
    found = verify(run)
    assert [f for f in found.findings if where in f.where], found.findings
    result = CliRunner().invoke(command, [str(run), "--json"], standalone_mode=False)
    assert result.return_value == 9
    assert json.loads(result.stdout)["ok"] is False


def test_a_report_that_cites_what_is_not_there(run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    report["limits"] = [{"name": "x", "value": 1, "evidence": ["e999"]}]
    (run / "report.json").write_text(json.dumps(report))
    assert [f.what for f in verify(run).findings if "e999" in f.what]


def test_an_effect_without_approval_is_found(tmp_path: Path) -> None:
    call = {"id": "c1", "tool": "add", "args": {}}
    with FileJournal.create(tmp_path) as journal:
        journal.append("run.started", run="1")
        journal.append("call.intent", call=call, verdict={"binding": "a"})
        journal.append("call.started", call="c1")
        journal.append("call.started", call="c2")
        journal.append("approval.decided", call="c1", answer="approve", binding="b")
    assert [f.where for f in verify(tmp_path).findings] == ["e3", "e4", "e5"]


def test_a_torn_line_and_a_foreign_type_are_notes(tmp_path: Path) -> None:
    with FileJournal.create(tmp_path) as journal:
        journal.append("run.started", run="1")
    path = tmp_path / "events.jsonl"
    path.write_bytes(path.read_bytes() + b"{")
    found = verify(tmp_path)
    assert found.ok
    assert len(found.notes) == 1


def test_no_such_run() -> None:
    assert CliRunner().invoke(command, ["/nowhere/at-all"], standalone_mode=False).return_value == 2
