"""Slash commands: what works without a model, on the same way as everything else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from chat.world import SMALL, TWO_CARDS, talking
from click.testing import CliRunner

from opsagent.chat.commands import COMMANDS, VERBS, obey, without_secrets, words
from opsagent.chat.record import chats_root
from opsagent.cli.plan import command as plan_command

FAILED_LOG = Path(__file__).parents[1] / "data" / "logs"


def test_plan_says_what_opsagent_plan_says(tmp_path: Path) -> None:
    with talking(tmp_path, lab=TWO_CARDS) as t:
        obey(t.chat, "/plan /srv/models/m --want-context 32768 --want-concurrency 4 --sglang 0.5.11 -- --tp 2")
        ours = t.chat.run.journal.state.calls["c1"].result or {}
        config = tmp_path / "config.json"
        read = t.chat.run.open_host("gpu1")
        from opsagent_tools.read_config import ReadConfigArgs
        from opsagent_tools.read_config import run as read_config

        config.write_text(json.dumps(read_config(read, ReadConfigArgs(path="/srv/models/m")).config))
        free = str(ours["per_gpu_gib"]["free"])
        done = CliRunner().invoke(plan_command, [
            "--model", str(config), "--gpu", "RTX A6000:49140", "--num-gpus", "2", "--free-gib", free, "--sglang", "0.5.11",
            "--want-context", "32768", "--want-concurrency", "4", "--json", "--", "--tp", "2",
        ], standalone_mode=False)  # fmt: skip
        theirs = json.loads(done.output)
        for key in ("max_running_requests", "context_len"):
            assert ours["limits"][key] == theirs["limits"][key]
        assert ours["limits"]["max_total_num_tokens"] == pytest.approx(
            theirs["limits"]["max_total_num_tokens"], rel=0.01
        )
        assert ours["proposal"]["change"] == theirs["proposal"]["change"]
        assert t.chat.last_code == 0


def test_plan_remembers_what_it_was_asked(tmp_path: Path) -> None:
    with talking(tmp_path, lab=TWO_CARDS) as t:
        obey(t.chat, "/plan")
        assert (t.chat.last_code, t.events("call.intent")) == (2, [])
        obey(t.chat, "/plan /srv/models/m --want-context 32768 --sglang 0.5.11 -- --tp 2 --max-running-requests 4")
        obey(t.chat, "/plan --want-context 65536")
        obey(t.chat, "/plan -- --tp 2")
        asked = [e["call"]["args"] for e in t.events("call.intent")]
        assert [a["want_context"] for a in asked] == [32768, 65536, 65536]
        assert asked[1]["flags"] == ["--tp", "2", "--max-running-requests", "4"]
        assert asked[2]["flags"] == ["--tp", "2"]
        assert {a["model"] for a in asked} == {"/srv/models/m"}


def test_run_that_is_refused_does_nothing(tmp_path: Path) -> None:
    with talking(tmp_path, answers=["no"]) as t:
        obey(t.chat, "/run launch")
        assert (t.chat.last_code, t.chat.runs) == (0, {})
        obey(t.chat, "/run launch -p nothing=1")
        assert t.chat.last_code == 2
        obey(t.chat, "/run no-such-runbook")
        assert t.chat.last_code == 2


def test_approve_says_and_sets_who_answers(tmp_path: Path) -> None:
    with talking(tmp_path) as t:
        obey(t.chat, "/approve")
        assert "scenario" in t.shown
        obey(t.chat, "/approve ask")
        assert t.chat.approve == "ask"
        obey(t.chat, "/approve nobody")
        assert (t.chat.last_code, t.chat.approve) == (2, "ask")


def test_a_run_that_waits_is_approved_and_resumed_in_the_chat(tmp_path: Path) -> None:
    """R3 in mode `declared`: the run stops with code 4, `/approve` answers, `/resume` goes on."""
    book = tmp_path / "restart.md"
    book.write_text(
        "---\nopsagent: 1\nname: restart\nhosts: {target: {count: 1}}\nallow: {tools: [ssh_exec]}\n---\n# Restart\n\n"
        "## Reload {#reload}\n\n```call\ntool: ssh_exec\nhost: target\nargs: {argv: [systemctl, restart, ssh]}\n"
        "as: done\n```\n"
        "```check\n- done.exit_code >= 0\n```\n"
    )
    with talking(tmp_path, answers=["y"]) as t:
        obey(t.chat, "/approve declared")
        obey(t.chat, f"/run {book}")
        assert t.chat.last_code == 4
        run = next(iter(t.chat.runs))
        obey(t.chat, f"/approve {run} --confirm-host gpu1")
        assert t.chat.last_code == 0
        obey(t.chat, f"/resume {run}")
        assert t.chat.report is not None
        assert t.chat.report.status not in ("waiting-approval", "denied", "invalid")


def test_diagnose_a_file_here_and_a_log_on_a_host(tmp_path: Path) -> None:
    log = next(path for path in sorted(FAILED_LOG.rglob("*")) if path.is_file())
    mine = tmp_path / "sglang.log"
    shutil.copy(log, mine)
    with talking(tmp_path, lab=SMALL + '"/var/log/s.log" = "ready\\n"\n') as t:
        obey(t.chat, f"/diagnose {mine}")
        assert t.chat.last_code in (0, 1, 3)
        obey(t.chat, "/diagnose gpu1:/var/log/s.log")
        assert [e["call"]["tool"] for e in t.events("call.intent")] == ["tail_log"]
        obey(t.chat, "/diagnose /no/such/log")
        assert t.chat.last_code == 2


@pytest.mark.parametrize(
    ("line", "word"),
    [("/plann x", "plan"), ("/hosts gpu9", "gpu1"), ("/report", "/run"), ("/stop zzzz", "zzzz"), ('/run "launch', "quotes"),
     ("/plan --want-context many /m", "want-context")],
)  # fmt: skip
def test_a_command_that_is_wrong_says_what_would_be_right(tmp_path: Path, line: str, word: str) -> None:
    with talking(tmp_path) as t:
        obey(t.chat, line)
        assert word in t.shown
        assert t.chat.last_code == 2


def test_help_lists_every_command(tmp_path: Path) -> None:
    with talking(tmp_path) as t:
        obey(t.chat, "/help")
        assert all(f"/{name}" in t.shown for name in (*COMMANDS, *VERBS))
        assert "No LLM" in t.shown
        assert set(words(t.chat)["/run"]) == set(t.chat.books)
        for name in COMMANDS:
            obey(t.chat, f"/{name} --help")
        assert t.events("call.intent") == []


def test_secret_parameters_are_kept_nowhere(tmp_path: Path) -> None:
    with talking(tmp_path) as t:
        line = "/run ./mine.md -p hub_token=correct-horse -p strange=battery-staple --host target=gpu1"
        kept = without_secrets(t.chat, line)
        assert "correct-horse" not in kept
        assert "battery-staple" not in kept
        assert "target=gpu1" in kept
        assert without_secrets(t.chat, "/run launch -p want_context=4096") == "/run launch -p want_context=4096"
        obey(t.chat, line)
    for path in chats_root().rglob("*"):
        assert not path.is_file() or b"correct-horse" not in path.read_bytes()
