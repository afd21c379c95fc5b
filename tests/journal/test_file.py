"""The journal on disk: order, chain, torn lines, one writer, full and broken disks."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from opsagent.journal import FileJournal, read_log
from opsagent.journal.disk import Disk
from opsagent.journal.lock import is_live
from opsagent.redact import Redactor
from opsagent_tools.errors import InputError, JournalError, TranscriptDamaged


def three(folder: Path) -> None:
    with FileJournal.create(folder) as journal:
        journal.append("run.started", run="7f3a")
        journal.append("note", text="héllo\u2028 \n line")
        journal.append("run.finished", status="verified", exit_code=0)


def test_seq_is_the_line_number_and_prev_the_hash_of_the_line_before(tmp_path: Path) -> None:
    three(tmp_path)
    log = read_log(tmp_path)
    assert [event.seq for event in log.events] == [1, 2, 3]
    assert log.events[1].data["text"] == "héllo\u2028 \n line"
    assert (tmp_path / "events.jsonl").read_bytes().count(b"\n") == 3
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o077 == 0


def test_a_torn_last_line_is_cut_off_and_noted_on_resume(tmp_path: Path) -> None:
    three(tmp_path)
    path = tmp_path / "events.jsonl"
    path.write_bytes(path.read_bytes() + b'{"v":1,"seq":4,"ts":"20')
    assert read_log(tmp_path).torn_line == 4
    with FileJournal.resume(tmp_path) as journal:
        assert journal.state.status == "verified"
    events = read_log(tmp_path).events
    assert events[3].type == "note"
    assert events[3].data == {"kind": "torn-line", "line": 4, "bytes": 23}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[0], lines[1], lines[1], lines[2]], 3),
        (lambda lines: [lines[0], lines[1].replace(b"note", b"nota"), lines[2]], 3),
        (lambda lines: [lines[0], lines[1][:20], lines[2]], 2),
        (lambda lines: [lines[0], b"[]", lines[2]], 2),
        (lambda lines: [lines[0].replace(b'"v":2,', b'"v":99,'), *lines[1:]], 1),
        (lambda lines: [lines[0], b"", *lines[1:]], 2),
    ],
)
def test_any_other_damage_names_its_line(tmp_path: Path, change, line: int) -> None:  # type: ignore[no-untyped-def]
    three(tmp_path)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(change(path.read_bytes().splitlines())) + b"\n")
    with pytest.raises(TranscriptDamaged, match=rf"line {line} "):
        read_log(tmp_path)
    with pytest.raises(TranscriptDamaged):
        FileJournal.resume(tmp_path)


def test_one_writer(tmp_path: Path) -> None:
    with FileJournal.create(tmp_path) as journal:
        journal.append("run.started", run="1")
        assert is_live(tmp_path)
        with pytest.raises(InputError, match=str(os.getpid())):
            FileJournal.resume(tmp_path)
    assert not is_live(tmp_path)
    FileJournal.resume(tmp_path).close()
    with pytest.raises(InputError, match="holds a run"):
        FileJournal.create(tmp_path)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\nfrom opsagent.journal import FileJournal\n"
        "j = FileJournal.create(pathlib.Path(sys.argv[1]))\nj.append('run.started', run='1')\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=False)
    assert done.returncode == -9
    with FileJournal.resume(tmp_path / "run") as journal:
        assert journal.state.run == "1"


def fail_after(count: int, code: int, *, part: int | None = None) -> Disk:
    """A disk on which write number `count` fails, after having written `part` bytes of it."""
    seen = [0]

    def write(fd: int, data: bytes) -> int:
        seen[0] += 1
        if seen[0] == count and part is not None:
            return os.write(fd, data[:part])
        if seen[0] >= count:
            raise OSError(code, os.strerror(code))
        return os.write(fd, data)

    return Disk(write=write)


@pytest.mark.parametrize("part", [None, 1, 30])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_full_or_broken_disk_stops_before_the_effect(tmp_path: Path, code: int, part: int | None) -> None:
    journal = FileJournal.create(tmp_path, disk=fail_after(3, code, part=part))
    effects: list[int] = []

    def work() -> None:
        for number in range(9):
            journal.append("call.started", call=f"c{number}")
            effects.append(number)

    with pytest.raises(JournalError, match=os.strerror(code)):
        work()
    assert effects == [0, 1]
    with pytest.raises(JournalError):
        journal.append("note", text="still broken")
    journal.close()
    log = read_log(tmp_path)
    assert [event.data["call"] for event in log.events] == ["c0", "c1"]
    assert not log.torn
    with FileJournal.resume(tmp_path) as again:
        again.append("note", text="and on")


def test_a_failed_flush_breaks_the_journal_for_good(tmp_path: Path) -> None:
    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    journal = FileJournal.create(tmp_path, disk=Disk(fsync=fsync))
    for _ in range(2):
        with pytest.raises(JournalError, match="Input/output error"):
            journal.append("call.started", call="c1")
    journal.close()
    assert read_log(tmp_path).events == ()


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot begin a run"):
        FileJournal.create(tmp_path / "file" / "run")


def test_blobs_are_named_by_what_they_hold(tmp_path: Path) -> None:
    with FileJournal.create(tmp_path, Redactor({"KEY": "opensesame-1234"})) as journal:
        sha = journal.blob(b"\xff\x00 the key is opensesame-1234\n")
        event = journal.append("call.finished", call="c1", result={}, ok=True, output=[sha])
        assert journal.read_blob(sha) == b"\xff\x00 the key is [redacted:KEY]\n"
        assert journal.blob(b"\xff\x00 the key is opensesame-1234\n") == sha
        (tmp_path / "blobs" / sha).write_bytes(b"other")
        with pytest.raises(TranscriptDamaged, match="was changed"):
            journal.read_blob(sha)
        with pytest.raises(TranscriptDamaged, match="missing"):
            journal.read_blob("0" * 64)
        with pytest.raises(InputError):
            journal.read_blob("../../etc/passwd")
        told = [e for e in journal.events() if e.type == "redaction.applied"]
    assert told[0].data == {"rules": {"KEY": 1}, "by": event.id}


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    with FileJournal.create(tmp_path, Redactor({"KEY": "opensesame-1234"})) as journal:
        journal.append("note", text="--api-key opensesame-1234", env={"HF_TOKEN": "whatever-it-is"})
        journal.append("note", **{"opensesame-1234": ["--token", "plainvalue"]})
    text = (tmp_path / "events.jsonl").read_text()
    assert not [word for word in ("opensesame", "whatever-it-is", "plainvalue") if word in text]
    for line in text.splitlines():
        json.loads(line)


def test_what_json_or_utf8_cannot_say_is_replaced(tmp_path: Path) -> None:
    with FileJournal.create(tmp_path) as journal:
        event = journal.append("note", bad="a\ud800b", nan=float("nan"), nul="\0", tuple=(1, 2), where=Path("/x"))
    assert event == read_log(tmp_path).events[0]
    assert event.data == {"bad": "a?b", "nan": "nan", "nul": "\0", "tuple": [1, 2], "where": "/x"}


def test_only_known_types_are_written(tmp_path: Path) -> None:
    with FileJournal.create(tmp_path) as journal, pytest.raises(ValueError, match="not an event type"):
        journal.append("run.exploded")


@pytest.mark.parametrize("part", [0, 10, None])
def test_a_ctrl_c_in_the_middle_of_an_append(tmp_path: Path, part: int | None) -> None:
    """The event is there as a whole or not at all, and the next one continues the chain."""
    armed = [False]

    def write(fd: int, data: bytes) -> int:
        if not armed[0]:
            return os.write(fd, data)
        armed[0] = False
        os.write(fd, data[:part] if part is not None else data)
        raise KeyboardInterrupt

    journal = FileJournal.create(tmp_path, disk=Disk(write=write))
    journal.append("run.started", run="1")
    armed[0] = True
    with pytest.raises(KeyboardInterrupt):
        journal.append("note", text="interrupted")
    journal.append("run.finished", status="interrupted", exit_code=130)
    state = journal.state
    journal.close()
    log = read_log(tmp_path)
    assert [event.type for event in log.events] == ["run.started", *(["note"] if part is None else []), "run.finished"]
    assert (state.seq, state.status) == (len(log.events), "interrupted")


def test_many_threads_write_one_chain(tmp_path: Path) -> None:
    with FileJournal.create(tmp_path, disk=Disk(fsync=lambda _fd: None)) as journal:
        threads = [
            threading.Thread(target=lambda: [journal.append("call.progress", call="c1") for _ in range(50)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read_log(tmp_path).events) == 400
