"""A damaged run can be looked at as far as it is intact."""

from __future__ import annotations

from pathlib import Path

from opsagent.journal import FileJournal
from opsagent.journal.intact import open_intact
from opsagent.journal.reader import EVENTS


def write(folder: Path, *, bad_intent: bool = False) -> None:
    with FileJournal.create(folder) as journal:
        journal.append("run.started", run="t1", params={})
        journal.append("step.entered", step="one", title="One")
        if not bad_intent:
            journal.append("note", why="x")
    if bad_intent:
        from opsagent.journal.format import digest, encode
        from opsagent.protocols import Event

        path = folder / EVENTS
        lines = path.read_bytes().splitlines()
        line = encode(Event(3, "2026-01-01T00:00:00Z", "call.intent", {"call": {"id": []}}, digest(lines[-1])))
        path.write_bytes(b"\n".join([*lines, line]) + b"\n")


def test_what_comes_before_the_damage_is_there(tmp_path: Path) -> None:
    write(tmp_path)
    assert open_intact(tmp_path)[1] is None
    path = tmp_path / EVENTS
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], lines[1].replace(b"One", b"Two"), lines[2]]) + b"\n")
    opened, damage = open_intact(tmp_path)
    assert damage is not None
    assert damage.where.endswith(":3")
    assert [event.type for event in opened.log.events] == ["run.started", "step.entered"]
    assert opened.state.run == "t1"
    assert opened.log.torn_line is None


def test_a_whole_line_that_means_nothing_is_damage_too(tmp_path: Path) -> None:
    write(tmp_path, bad_intent=True)
    opened, damage = open_intact(tmp_path)
    assert damage is not None
    assert damage.where.endswith(":3")
    assert len(opened.log.events) == 2


def test_a_torn_line_is_no_damage(tmp_path: Path) -> None:
    write(tmp_path)
    with (tmp_path / EVENTS).open("ab") as file:
        file.write(b'{"v":1,"seq":4')
    opened, damage = open_intact(tmp_path)
    assert damage is None
    assert opened.log.torn_line == 4
