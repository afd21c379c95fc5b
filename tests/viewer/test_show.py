"""`opsagent show`: what is printed, what is selected, what a pipe and a damaged run get."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from terminal import OPSAGENT, Session
from viewer.synthetic import Stranger, hostile_run

from opsagent.cli import cli

STORY = Path(__file__).parents[2] / "transcripts" / "story"


def show(*args: object) -> tuple[int, Result]:
    result = CliRunner().invoke(cli, ["show", *map(str, args)], standalone_mode=False)
    assert result.exception is None, result.exception
    assert isinstance(result.return_value, int)
    return result.return_value, result


def ids(result: Result) -> list[str]:
    first = [line.split()[0] for line in result.stdout.splitlines()[1:-1] if line.split()]
    return [word for word in first if word[0] == "e" and word[1:].isdigit()]


def test_selections() -> None:
    events = [json.loads(line) for line in (STORY / "events.jsonl").read_text().splitlines()]
    red = [
        f"e{e['seq']}"
        for e in events
        if (e["type"] == "step.check" and not e["data"]["ok"])
        or (e["type"] == "call.finished" and e["data"]["result"].get("cause"))
    ]
    assert len(red) > 2
    assert ids(show(STORY, "--only", "problems")[1]) == red
    decided = [f"e{e['seq']}" for e in events if e["type"].startswith("approval.")]
    assert ids(show(STORY, "--only", "approvals")[1]) == decided
    entered = [e["seq"] for e in events if e["type"] == "step.entered" and e["data"]["step"] == "driver"]
    left = [e["seq"] for e in events if e["type"] == "step.left" and e["data"]["step"] == "driver"]
    shown = ids(show(STORY, "--step", "driver")[1])
    assert shown[0] == f"e{entered[0]}"
    assert shown[-1] == f"e{left[0]}"
    found = ids(show(STORY, "--step", "driver", "--grep", "VFIO.conf", "--only", "calls")[1])
    assert found == [
        f"e{e['seq']}"
        for e in events[entered[0] - 1 : left[0]]
        if e["type"].startswith("call.") and "vfio.conf" in json.dumps(e["data"])
    ]
    body = json.loads(show(STORY, "--step", "driver", "--json")[1].stdout)
    assert [event["id"] for event in body["events"]] == [f"e{n}" for n in range(entered[0], left[0] + 1)]


def test_what_is_not_there() -> None:
    assert show(STORY, "--grep", "no such words anywhere")[0] == 1
    assert show(STORY, "--step", "drivr")[0] == 2
    assert "`driver`" in show(STORY, "--step", "drivr")[1].stderr
    assert show(STORY, "--grep", "(")[0] == 2
    for event in ("e0", "e99999", "x", "e١"):
        assert show(STORY, event)[0] == 2
    assert show(STORY, "--event", "e3", "-e", "e5")[0] == 0


def test_the_same_event_by_name_and_by_option_with_all_that_it_holds() -> None:
    one = show(STORY, "e218")[1].stdout
    assert one == show(STORY, "--event", "e218")[1].stdout
    assert "max_total_num_tokens" in one
    assert f"opsagent show {STORY} --blob " in one
    assert "\nc24: e215 e216 e217 e218\n" in one
    assert one.count("proves: Limits: ") == 3
    full = show(STORY, "--step", "launch", "--full")[1].stdout
    assert "Decode batch" in full or "server is fired up" in full.lower()
    assert "characters left out" in full


def test_a_pipe_gets_one_line_for_each_event_and_may_close() -> None:
    piped = show(STORY)[1].stdout.splitlines()
    assert all(line.split()[0].startswith("e") for line in piped[1:-1])
    assert "\x1b" not in "".join(piped)
    program = f"{sys.executable} -c 'from opsagent.cli import main; main()' show {STORY} --full"
    done = subprocess.run(
        ["/bin/bash", "-c", f"{program} | head -n 3; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_at_a_terminal_long_lines_go_on_under_themselves() -> None:
    with Session([*OPSAGENT, "show", str(STORY), "--step", "launch"], size=(90, 50)) as plain:
        assert plain.wait() == 0
        rows = plain.screen.splitlines()
    with Session([*OPSAGENT, "show", str(STORY), "--step", "launch"], {"NO_COLOR": "1"}, size=(90, 50)) as grey:
        assert grey.wait() == 0
        assert grey.screen.splitlines() == rows
    assert b"\x1b[32m" in plain.raw
    assert not any(code in grey.raw for code in (b"\x1b[3", b"\x1b[9", b"\x1b[4"))
    first = next(number for number, row in enumerate(rows) if " c24 " in row)
    assert rows[first].startswith("  e215   c24")
    assert rows[first + 1].startswith(" " * 9)
    assert rows[first + 1].strip()


def test_a_damaged_run_shows_what_is_intact(tmp_path: Path) -> None:
    lines = (STORY / "events.jsonl").read_bytes().splitlines(keepends=True)
    lines[99] = lines[99].replace(b'"ok":true', b'"ok":null').replace(b'"type":"', b'"type":"x', 1)
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines))
    code, result = show(tmp_path)
    assert code == 9
    assert "events.jsonl:101" in result.stderr
    assert int(ids(result)[-1][1:]) <= 100
    assert ids(result)[0] == "e1"
    code, result = show(tmp_path, "--json")
    assert code == 9
    body = json.loads(result.stdout)
    assert body["damage"]["where"].endswith(":101")
    assert body["events"][-1]["id"] == "e100"
    page = tmp_path / "page.html"
    code, result = show(tmp_path, "--html", page)
    assert code == 9
    assert "The journal is damaged" in page.read_text()
    assert 'id="e100"' in page.read_text()
    assert 'id="e101"' not in page.read_text()


def test_nonsense_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b"nonsense\n")
    assert show(tmp_path)[0] == 9
    assert show(tmp_path, "--html", tmp_path / "x.html")[0] == 9
    (tmp_path / "events.jsonl").write_bytes(b"")
    assert show(tmp_path)[0] == 0
    assert show(tmp_path, "--html", tmp_path / "x.html")[0] == 0


EVERY = ("run.started", "run.resumed", "run.finished", "step.entered", "step.check", "step.left", "model.request",
         "model.response", "approval.requested", "approval.decided", "call.started", "call.finished", "call.failed",
         "remedy.applied", "param.changed", "redaction.applied", "note", "error", "snapshot", "what.ever")  # fmt: skip


@pytest.mark.parametrize(
    "data", [{}, {"call": []}, {"call": {"id": 3}, "rules": 4, "evidence": {}, "new": 1, "message": 2}]
)
def test_events_that_lack_everything_are_shown(tmp_path: Path, data: dict[str, object]) -> None:
    with Stranger(tmp_path) as run:
        for name in EVERY:
            run.append(name, **data)
    assert show(tmp_path, "--full")[0] in (0, 9)
    assert show(tmp_path, "--html", tmp_path / "x.html")[0] in (0, 9)


def test_hostile_names_are_inert_on_a_terminal(tmp_path: Path) -> None:
    hostile_run(tmp_path)
    for args in ([], ["--full"], ["e9"], ["--grep", "evil"]):
        code, result = show(tmp_path, *args)
        assert code == 0
        assert not set(result.stdout) & set("\x1b\x07\x00\r\u202e\u200b\u3164")
    assert max(map(len, show(tmp_path)[1].stdout.splitlines())) < 2000


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, result = show(STORY, "--html", page, "--json")
    assert code == 0
    told = json.loads(result.stdout)
    assert told["bytes"] == page.stat().st_size
    assert told["events"] == 252
    assert show(STORY, "--html", "-")[1].stdout == page.read_text()
    assert show(STORY, "--html", tmp_path / "no" / "x.html")[0] == 2
    assert show(STORY, "--html", tmp_path)[0] == 2
    assert sorted(os.listdir(tmp_path)) == ["page.html"]  # noqa: PTH208


def test_no_template_engine_without_html() -> None:
    code = (
        "import sys\nfrom opsagent.cli import cli\n"
        f"cli.main(['show', {str(STORY)!r}, '--full'], standalone_mode=False)\n"
        "print(sorted({'jinja2', 'openai', 'paramiko', 'fabric', 'asyncssh'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
