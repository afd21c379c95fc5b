"""The verbs that read runs: runs, show, diff, replay, verify. Judged by exit codes, JSON and which events are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from loop.world import CounterHost, ScriptedGate
from replay.record import record

from opsagent.call import Decision
from opsagent.cli import VERBS, cli
from opsagent.cli.diff import command as diff
from opsagent.cli.runs import command as runs
from opsagent.cli.show import command as show
from opsagent.journal.runs import find_run, new_run, open_run
from opsagent_tools.errors import InputError, ToolFailed


def call(command: click.Command, *args: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(arg) for arg in args], standalone_mode=False)
    assert result.exception is None, result.exception
    code = result.return_value
    assert isinstance(code, int)
    return code, result.stdout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def made(home: Path, **options: Any) -> Path:
    _run, folder = new_run(options.pop("out", None))
    record(folder, **options)
    return folder


def test_runs_lists_what_is_there_newest_first(home: Path) -> None:
    assert call(runs)[0] == 0
    first = made(home)
    second = made(home, gate=ScriptedGate(answers={"add": Decision("wait", by="nobody")}))
    (second / "events.jsonl").touch()
    code, text = call(runs, "--json")
    rows = json.loads(text)["runs"]
    assert code == 0
    assert {row["status"] for row in rows} == {"verified", "waiting-approval"}
    assert {row["folder"] for row in rows} == {str(first), str(second)}
    assert [row["waiting"] for row in rows if row["status"] == "waiting-approval"] == [["c1"]]
    assert "opsagent approve" in call(runs)[1]


def test_a_damaged_run_does_not_hide_the_others(home: Path) -> None:
    made(home)
    bad = made(home)
    (bad / "events.jsonl").write_bytes(b"nonsense\n{}\n")
    rows = json.loads(call(runs, "--json")[1])["runs"]
    assert sorted(row["status"] for row in rows) == ["damaged", "verified"]


def test_a_run_is_found_by_id_prefix_and_path(home: Path) -> None:
    folder = made(home, out=home / "elsewhere")
    run = json.loads(call(runs, "--json")[1])["runs"][0]
    assert folder == home / "elsewhere"
    ids = [path.name for path in (home / "state/opsagent/runs").iterdir()]
    assert find_run(ids[0]).resolve() == folder.resolve()
    assert find_run(ids[0][:2]).resolve() == folder.resolve()
    assert find_run(str(folder)) == folder
    assert open_run(run["folder"]).status == "verified"
    for wrong in ("zz", "", "../x", str(home)):
        with pytest.raises(InputError):
            find_run(wrong)
    (home / "state/opsagent/runs" / (ids[0] + "9")).symlink_to(folder)
    assert find_run(ids[0]).name == ids[0]
    with pytest.raises(InputError, match="begins 2 runs"):
        find_run(ids[0][:3])


def test_show_names_the_event_behind_each_line(home: Path) -> None:
    folder = made(home, host=CounterHost(faults=[ToolFailed("broken \x1b[31m\u202e pipe")]))
    code, text = call(show, folder)
    assert code == 0
    ids = [line.split()[0] for line in text.splitlines()[1:-1]]
    assert all(ident.startswith("e") for ident in ids)
    assert "\x1b" not in text
    assert "\u202e" not in text
    code, text = call(show, folder, "--json")
    body = json.loads(text)
    assert body["status"] == "failed"
    assert [event["id"] for event in body["events"]] == [f"e{n + 1}" for n in range(len(body["events"]))]


def test_show_one_event_and_one_blob(home: Path) -> None:
    folder = made(home)
    assert '"goal": 2' in call(show, folder, "e1")[1]
    assert json.loads(call(show, folder, "e2", "--json")[1])["events"][0]["id"] == "e2"
    blob = next((folder / "blobs").iterdir())
    assert call(show, folder, "--blob", blob.name[:6])[1].startswith("---\nopsagent: 1")
    assert call(show, folder, "e999")[0] == 2
    assert call(show, folder, "--blob", "zz")[0] == 2
    assert call(show, "/nowhere/at/all")[0] == 2


def test_diff_finds_where_two_runs_part(home: Path) -> None:
    one = made(home)
    same = made(home)
    other = made(home, gate=ScriptedGate(answers={"add": Decision("reject", by="operator")}))
    assert call(diff, one, same)[0] == 0
    code, text = call(diff, one, other, "--json")
    body = json.loads(text)
    assert code == 1
    assert body["divergence"]["step"] == "raise"
    assert "decision on add" in body["divergence"]["what"]
    assert body["totals"]["a"]["status"] == "verified"
    assert call(diff, one, other)[0] == 1
    assert call(diff, one, "/nowhere/x")[0] == 2


def test_help_and_reading_verbs_import_no_heavy_library(home: Path) -> None:
    folder = made(home)
    heavy = "{'openai', 'paramiko', 'fabric', 'asyncssh', 'httpx2', 'huggingface_hub'}"
    for args in (
        ["--help"],
        ["show", str(folder)],
        ["verify", str(folder)],
        ["runs"],
        ["diff", str(folder), str(folder)],
    ):
        code = (
            "import sys\nfrom opsagent.cli import cli\n"
            f"try: cli.main({args!r}, standalone_mode=False)\n"
            f"finally: print(sorted({heavy} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip().endswith("[]"), (args, done.stdout[-300:], done.stderr[-300:])


def test_every_verb_of_this_area_has_a_help(home: Path) -> None:
    for verb in ("runs", "show", "diff", "replay", "verify", "doctor"):
        assert verb in VERBS
        result = CliRunner().invoke(cli, [verb, "--help"])
        assert result.exit_code == 0
        assert "Exit" in result.output or verb in ("runs", "show")
