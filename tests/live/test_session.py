"""The program as a person at a terminal uses it: watching a run, stopping it, going on, and being asked."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from terminal import CTRL_C, OPSAGENT, Session

HINT = r"go on with: opsagent resume (\w+)"
QUESTION = r"sto\[p\]: "
ROOT = Path(__file__).parents[2]
LONG = 240.0
"""Seconds that a busy machine is given for what takes two or three."""


def opsagent(*words: str, home: Path, stdout: Path | None = None) -> Session:
    env = {"XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home), "OPENAI_API_KEY": "", "OPSAGENT_LLM": None}
    return Session((*OPSAGENT, *words), env, (110, 40), cwd=ROOT, stdout=stdout)


def events(run: Path, type: str) -> list[dict[str, Any]]:
    lines = (run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event["data"] for event in map(json.loads, lines) if event["type"] == type]


def marks(session: Session) -> dict[str, str]:
    """Step → mark, of the lines that stayed."""
    return {name: mark for mark, name in re.findall(r"^ ([✔✘⟲▶]) (\S+)", session.scrollback, re.MULTILINE)}


def test_the_story_is_watched_stopped_in_the_middle_and_gone_on_with(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with opsagent("run", "runbooks/migrate.md", "--out", str(run), home=tmp_path) as session:
        session.see(r"SIMULATED", LONG)
        first = session.see(r"▶ model .*\n.* ([1-9][0-9.]*)/51\.8 GiB · .*MiB/s · \S+ left", LONG)[1]
        session.see(rf"▶ model .*\n.* (?!{re.escape(first)}/)([1-9][0-9.]*)/51\.8 GiB", LONG)  # the bar moves
        session.see(r"calls \d+/200")
        session.send(CTRL_C)
        assert session.wait(LONG) == 130
        assert marks(session) == {
            **dict.fromkeys(("inventory", "driver", "container", "environment"), "✔"), "model": "▶",
        }  # fmt: skip
        name = re.findall(HINT, session.scrollback)[-1]
        assert not session.cursor_hidden
    assert events(run, "run.finished")[-1]["status"] == "interrupted"
    out = tmp_path / "report.json"
    with opsagent("resume", name, "--json", home=tmp_path, stdout=out) as session:
        session.see(r"▶ launch .*\n.*/15 shards", LONG)
        assert session.wait(LONG) == 0
        steps = ("model", "plan", "preflight", "launch", "verify", "switch")
        assert marks(session) == dict.fromkeys(steps, "✔")
    report = json.loads(out.read_text(encoding="utf-8"))  # one object, and nothing of the view in it
    assert (report["status"], report["weight_loads"]) == ("verified", 1)
    assert len(events(run, "run.resumed")) == 1


def test_two_interrupts_end_at_once_and_the_journal_is_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with opsagent("run", "runbooks/migrate.md", "--out", str(run), home=tmp_path) as session:
        session.see(r"▶ (inventory|driver) .* on ", LONG)
        session.send(CTRL_C)
        session.send(CTRL_C)
        assert session.wait(LONG) == 130
        assert re.search(HINT, session.scrollback)
    with opsagent("verify", str(run), home=tmp_path) as session:
        assert session.wait(LONG) == 0
    with opsagent("resume", str(run), "--approve", "never", home=tmp_path) as session:
        assert session.wait(LONG) == 6  # it went on, as far as the first call that needs a yes
    assert events(run, "run.finished")[-1]["status"] == "denied"


def test_a_question_is_the_persons_and_only_the_hosts_name_allows_r3(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--approve", "ask")
    with opsagent("run", "runbooks/migrate.md", "--out", str(run), *words, home=tmp_path) as session:
        session.see(r"▶ inventory .* on ", LONG)
        session.line("kpro5")  # before anything was asked: no answer to anything
        session.expect(r"R3 · write_file on kpro5", LONG)
        session.expect(QUESTION, LONG)
        assert not session.cursor_hidden
        assert "Ctrl-C ends cleanly" not in session.screen  # the changing lines are away
        assert "vfio-pci ids=" in session.screen  # the change, as a diff
        session.line("kpro5")
        session.see(r"Ctrl-C ends cleanly", LONG)  # and they come back
        session.expect(r"R3 · run_job on kpro5", LONG)
        session.expect(QUESTION, LONG)
        session.send(CTRL_C)
        assert session.wait(LONG) == 130
        assert re.search(HINT, session.scrollback)
    with opsagent("resume", str(run), home=tmp_path) as session:
        session.expect(r"R3 · run_job on kpro5", LONG)  # the question was left open
        session.expect(QUESTION, LONG)
        session.line("yes")
        session.expect(r"needs the host's name", LONG)
        session.expect(r"why not", LONG)
        session.line("not today")
        session.expect(r"R3 · write_file on kpro5", LONG)  # the step's rollback
        session.expect(QUESTION, LONG)
        session.line("p")
        session.expect(r"why \(", LONG)
        session.line("I look first")
        assert session.wait(LONG) == 6
        assert marks(session)["driver"] == "✘"
    decided = [(d["by"], d["answer"], d["reason"]) for d in events(run, "approval.decided") if d["by"] == "operator"]
    assert decided == [
        ("operator", "approve", ""), ("operator", "reject", "not today"), ("operator", "stop", "I look first"),
    ]  # fmt: skip


def test_an_r2_call_is_made_after_a_yes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("runbooks/decommission.md", "--approve", "ask", "--out", str(run))
    with opsagent("run", *words, home=tmp_path) as session:
        session.expect(r"R2 · ssh_exec on kpro6", LONG)
        session.expect(QUESTION, LONG)
        session.line("y")
        session.expect(r"R2 · stop_server on kpro6", LONG)
        session.expect(QUESTION, LONG)
        session.line("y")
        assert session.wait(LONG) == 0
        assert marks(session) == {"new": "✔", "look": "✔", "stop": "✔"}
        assert "approved by the operator: R2 stop_server on kpro6" in session.scrollback


def test_plain_lines_say_the_same_where_there_is_no_terminal(tmp_path: Path) -> None:
    run = tmp_path / "run"
    argv = (*OPSAGENT, "run", "runbooks/migrate.md", "--out", str(run), "--json", "--approve", "declared")
    env = {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG, env=env, cwd=ROOT, check=False)
    assert done.returncode == 4
    assert json.loads(done.stdout)["exit_code"] == 4
    assert "\x1b" not in done.stderr
    assert "inventory" in done.stderr
    waiting = events(run, "approval.requested")[-1]["call"]
    assert re.search(rf"opsagent approve \w+ {waiting}", done.stderr)
