"""A run tells the webhook when it waits and when it ends, and nothing that happens there is the run's trouble."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from loop.world import TWO_STEPS, ScriptedGate, make_run
from notify.webhook_server import Hook
from watching import LOOK, WRITE, make_home, notes, run

from opsagent.autopilot import Autopilot
from opsagent.call import Call, Decision
from opsagent.cli import cli
from opsagent.journal.runs import run_folders
from opsagent.journal.state import RunState
from opsagent.loop import drive
from opsagent.notify import Notifier, ends
from opsagent.observing import Observed
from opsagent.protocols import Event
from opsagent.run import Silent
from opsagent.signals import NeedApproval
from opsagent.webhook import Undelivered, Webhook
from opsagent_tools.tool import Progress


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a webhook configured."""
    make_home(tmp_path)
    (tmp_path / "config" / "opsagent" / "opsagent.toml").write_text('[notify]\nurl_env = "HOOK_URL"\ntimeout_s = 10\n')
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_end_and_the_waiting_are_told_with_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hook() as hook:
        monkeypatch.setenv("HOOK_URL", f"{hook.url}/T0K3N-in-the-path")
        code, events = run(home, LOOK)
        assert (code, notes(events)) == (0, [])
        waits, more = run(home, LOOK + WRITE, "--approve", "declared")
        assert (waits, notes(more)) == (4, [])
    ended, waiting = hook.bodies
    assert (ended["event"], ended["status"], ended["exit_code"], ended["host"]) == ("ends", "verified", 0, "pve")
    assert ended["do"] == f"opsagent show {events[0]['data']['run']}"
    assert ended["simulated"] is True
    assert (waiting["event"], waiting["status"], waiting["host"]) == ("waits", "waiting-approval", "pve")
    assert waiting["do"] == f"opsagent approve {more[0]['data']['run']} c2"
    assert waiting["call"] == {"id": "c2", "tool": "write_file", "host": "pve", "tier": waiting["call"]["tier"]}
    for folder in home.glob("run*"):
        for path in folder.rglob("*"):
            assert not path.is_file() or b"T0K3N-in-the-path" not in path.read_bytes()


def test_an_endpoint_that_is_down_is_a_note_and_nothing_else(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hook() as hook:
        gone = hook.url
    monkeypatch.setenv("HOOK_URL", f"{gone}/T0K3N-in-the-path")
    code, events = run(home, LOOK)
    assert code == 0
    (note,) = notes(events)
    assert "127.0.0.1" in note
    assert "T0K3N" not in json.dumps(events)


def test_without_a_url_it_is_off_and_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOOK_URL", raising=False)
    code, events = run(home, LOOK)
    assert code == 0
    assert "HOOK_URL is not set" in capsys.readouterr().err
    assert len(notes(events)) == 1


@pytest.mark.parametrize(
    "text", ["[notify]\nurl_en = 'X'\n", "[telemetry]\nendpiont = 'X'\n", "[gate]\nroot = ['/x']\n"]
)
def test_a_configuration_that_cannot_be_is_an_error_before_a_run_exists(home: Path, text: str) -> None:
    (home / "config" / "opsagent" / "opsagent.toml").write_text(text)
    (home / "look.md").write_text(LOOK)
    args = ["run", str(home / "look.md"), "--lab", str(home / "small.toml")]
    assert cli.main(args, standalone_mode=False) == 2
    assert list(run_folders()) == []


# --- the watcher alone -----------------------------------------------------------------------------------------------


class Sent:
    """Stands in for the network."""

    def __init__(self, error: Exception | None = None) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.error = error

    def __call__(self, hook: Webhook, body: Mapping[str, Any]) -> None:
        self.bodies.append(body)
        if self.error is not None:
            raise self.error


def watched(gate: ScriptedGate, sent: Sent, **more: Any) -> tuple[Any, Notifier]:
    made = make_run(TWO_STEPS, gate=gate)
    notifier = Notifier(Webhook("https://x.example"), lambda: made.journal.state, lambda text: text, send=sent, **more)
    made.watcher = Observed(Silent(), [notifier])
    return made, notifier


def test_a_call_that_waits_is_told_once_although_the_run_then_ends() -> None:
    sent = Sent()
    made, notifier = watched(ScriptedGate(answers={"add": Decision("wait", "nobody")}), sent)
    with pytest.raises(NeedApproval):
        drive(made, Autopilot(made))
    made.emit("run.finished", status="waiting-approval", exit_code=4, failed=None)
    assert notifier.close() == []
    assert [body["event"] for body in sent.bodies] == ["waits"]


def test_an_answer_at_the_terminal_in_time_tells_nobody() -> None:
    sent = Sent()
    made, notifier = watched(ScriptedGate(answers={"add": Decision("approve", "operator")}), sent, grace_s=3600.0)
    drive(made, Autopilot(made))
    assert notifier.close() == []
    assert sent.bodies == []


@pytest.mark.parametrize("error", [Undelivered("it answered 404"), ValueError("a bug of ours")])
def test_every_failure_is_said_by_close_and_none_is_raised(error: Exception) -> None:
    made, notifier = watched(ScriptedGate(), Sent(error))
    made.emit("run.finished", status="verified", exit_code=0, failed=None)
    (said,) = notifier.close()
    assert "ends was not delivered" in said


def test_text_from_elsewhere_is_flat_short_and_inert() -> None:
    sent = Sent()
    made, notifier = watched(ScriptedGate(), sent)
    hostile = "no space\x1b[2J\u202e left\n" * 500
    made.emit("run.finished", status="failed", exit_code=1, failed={"text": hostile, "evidence": []})
    notifier.close()
    text = json.dumps(sent.bodies[0], ensure_ascii=False)
    assert not set(text) & {"\x1b", "\u202e", "\n"}
    assert len(text) < 3000


def test_an_observer_with_a_bug_is_dropped_and_the_run_goes_on() -> None:
    class Broken:
        seen = 0

        def on_event(self, event: Event) -> None:
            self.seen += 1
            raise KeyError("oops")

        def on_progress(self, call: Call, progress: Progress) -> None:
            return

        def close(self) -> list[str]:
            return []

    made, broken = make_run(TWO_STEPS), Broken()
    made.watcher = observed = Observed(Silent(), [broken])
    drive(made, Autopilot(made))
    assert broken.seen == 1
    assert len(observed.close()) == 1


def test_what_a_host_said_calls_nobody_and_hides_no_link() -> None:
    """Slack and its like read markup in `text`, which may have come from a log."""
    said = "<!channel> <https://203.0.113.9|opsagent approve 7f3a> @here [ok](https://203.0.113.9) root@kpro5"
    text = ends(RunState(run="7f3a"), {"status": "failed", "exit_code": 1, "failed": {"text": said}})["text"]
    assert not set("<>[]") & set(text)
    assert "@here" not in text
    assert "root@kpro5" in text
