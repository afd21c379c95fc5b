"""What changes a host waits for a person in another terminal, runs once, and survives the death of the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_server.desk import Desk, body_of, text_of

from opsagent.cli import cli

WRITE = {"path": "/tmp/note.txt", "content": "written by an assistant\n"}


def kinds(events: list[dict[str, Any]], call: str) -> list[str]:
    """Types of the events of one call, in order."""
    of_call = [e for e in events if call in (e["data"].get("call"), (e["data"].get("call") or {}) and _id(e))]
    return [e["type"] for e in of_call]


def _id(event: dict[str, Any]) -> Any:
    call = event["data"].get("call")
    return call.get("id") if isinstance(call, dict) else None


def test_a_write_is_refused_then_approved_in_another_process_and_runs_exactly_once(desk: Desk) -> None:
    async def talk(client: Client) -> None:
        first = await client.call_tool("write_file", WRITE)
        assert first.is_error
        wanted = body_of(first)["approval"]
        run, call = wanted["run"], wanted["call"]
        assert wanted["command"] == f"opsagent approve {run} {call}"
        assert wanted["command"] in text_of(first)
        assert wanted["binding"] in text_of(first)
        assert desk.file(WRITE["path"]) is None
        assert kinds(desk.events(), call) == ["call.intent", "approval.requested"]

        again = await client.call_tool("write_file", WRITE)  # asking again asks nobody anew
        assert body_of(again)["approval"] == wanted
        assert kinds(desk.events(), call) == ["call.intent", "approval.requested"]

        answered = await asyncio.to_thread(desk.opsagent, "approve", run, call, "--yes")
        assert answered.returncode == 0, answered.stderr
        assert "the same call again" in answered.stderr
        done = await client.call_tool("write_file", WRITE)
        assert not done.is_error, text_of(done)
        assert desk.file(WRITE["path"]) == WRITE["content"]

        more = await client.call_tool("write_file", WRITE)  # the approval is used up
        assert body_of(more)["approval"]["call"] != call
        events = desk.events()
        assert kinds(events, call) == [
            "call.intent", "approval.requested", "approval.decided", "call.started", "call.finished"
        ]  # fmt: skip
        locks = [e["type"] for e in events if e["type"].startswith("host.")]
        assert locks == ["host.locked", "host.released"]  # held for the call only: an assistant may be idle for hours
        assert [e["data"]["call"] for e in events if e["type"] == "call.started"] == [call]

    desk.talk(talk)
    assert desk.events()[-1]["data"]["status"] == "waiting-approval"
    assert desk.intact()


def test_a_refusal_holds_and_a_stop_ends_the_session(desk: Desk) -> None:
    def answer(*words: str) -> None:
        assert cli.main(["approve", *words], standalone_mode=False) == 0

    async def talk(client: Client) -> None:
        wanted = body_of(await client.call_tool("write_file", WRITE))["approval"]
        answer(wanted["run"], wanted["call"], "--reject", "not on this host")
        for _ in range(2):
            refused = await client.call_tool("write_file", WRITE)
            assert "not on this host" in body_of(refused)["error"]["what"]
            assert "approval" not in body_of(refused)
        other = body_of(await client.call_tool("write_file", {**WRITE, "path": "/tmp/other.txt"}))["approval"]
        answer(other["run"], other["call"], "--stop", "enough for today")
        ended = await client.call_tool("read_config", {"path": "/srv/models/Qwen3.6-27B"})
        assert "enough for today" in body_of(ended)["error"]["what"]

    desk.talk_here(talk)
    assert [e["data"]["call"] for e in desk.events() if e["type"] == "call.started"] == []
    assert desk.intact()


def test_a_hash_in_the_approve_file_allows_exactly_one_call(desk: Desk) -> None:
    allowed = desk.home / "allowed.txt"
    allowed.write_text("# nothing yet\n")

    async def talk(client: Client) -> None:
        args = {"path": "/tmp/by-hash.txt", "content": "x"}
        wanted = body_of(await client.call_tool("write_file", args))["approval"]
        allowed.write_text(f"{wanted['binding']}  # write by-hash.txt\n")
        other = await client.call_tool("write_file", {**args, "content": "y"})
        assert other.is_error
        done = await client.call_tool("write_file", args)
        assert not done.is_error, text_of(done)
        assert (await client.call_tool("write_file", args)).is_error

    desk.talk_here(talk, approve_file=str(allowed))
    assert [e["data"]["by"] for e in desk.events() if e["type"] == "approval.decided"] == ["approve-file"]
    assert desk.intact()


def test_what_the_host_looks_like_now_decides_not_what_was_approved(desk: Desk) -> None:
    async def talk(client: Client) -> None:
        args = {"path": "/tmp/changing.txt", "content": "new"}
        wanted = body_of(await client.call_tool("write_file", args))["approval"]
        assert cli.main(["approve", wanted["run"], wanted["call"], "--yes"], standalone_mode=False) == 0
        with desk.lab.world.lock:
            desk.lab.world.files(desk.lab.world.hosts[desk.host]).symlink("/etc/fstab", "/tmp/changing.txt")
        refused = await client.call_tool("write_file", args)
        assert "no longer what would happen" in body_of(refused)["error"]["what"]

    desk.talk_here(talk)
    assert not [e for e in desk.events() if e["type"] == "call.started"]


def test_with_approvals_off_a_write_is_denied(desk: Desk) -> None:
    async def talk(client: Client) -> Any:
        return await client.call_tool("write_file", {"path": "/tmp/never.txt", "content": "x"})

    result = desk.talk_here(talk, approve="never")
    assert result.is_error
    assert "approval" not in body_of(result)
    assert desk.file("/tmp/never.txt") is None


def test_a_runbook_starts_only_after_approval_and_is_a_run_of_its_own(desk: Desk) -> None:
    async def talk(client: Client) -> Any:
        looked = await client.call_tool(
            "run_runbook", {"runbook": "diagnose", "hosts": {"target": "gpu3"}, "dry_run": True}
        )
        assert not looked.is_error, text_of(looked)
        args = {"runbook": "diagnose", "hosts": {"target": "gpu3"}}
        wanted = body_of(await client.call_tool("run_runbook", args))["approval"]
        assert cli.main(["approve", wanted["run"], wanted["call"], "--yes"], standalone_mode=False) == 0
        return await client.call_tool("run_runbook", args), await client.call_tool("runs", {})

    done, runs = desk.talk_here(talk)
    assert not done.is_error, text_of(done)
    assert text_of(runs).count('"runbook": "diagnose"') == 2
    for folder in (desk.home / "opsagent" / "runs").iterdir():
        assert desk.intact(folder)


def test_an_approval_of_a_runbook_is_for_its_text_and_not_for_its_name(desk: Desk) -> None:
    from opsagent.cli import cli
    from opsagent.data import find_runbook

    mine = desk.home / "mine.md"
    mine.write_text(find_runbook("diagnose").read_text())

    async def talk(client: Client) -> None:
        args = {"runbook": str(mine), "hosts": {"target": "gpu3"}}
        wanted = body_of(await client.call_tool("run_runbook", args))["approval"]
        assert cli.main(["approve", wanted["run"], wanted["call"], "--yes"], standalone_mode=False) == 0
        mine.write_text(mine.read_text().replace("name: diagnose", "name: something-else"))
        refused = await client.call_tool("run_runbook", args)
        assert "no longer what would happen" in body_of(refused)["error"]["what"]

    desk.talk_here(talk)
    (intent,) = [e["data"] for e in desk.events() if e["type"] == "call.intent"]
    assert "inspect_host" in intent["verdict"]["effects"][0]
    assert len(list((desk.home / "opsagent" / "runs").iterdir())) == 1


def test_a_cancelled_call_ends_and_the_session_goes_on(desk: Desk) -> None:
    desk.put("/tmp/starting.log", "[2026-12-01 01:00:00] server_args=ServerArgs(model_path='/srv/models/x')\n")
    seen: list[str] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    async def talk(client: Client) -> Any:
        args = {"path": "/tmp/starting.log", "follow_s": 100000.0}
        with pytest.raises(MCPError):
            await client.call_tool("tail_log", args, read_timeout_seconds=1.0, progress_callback=progress)
        return await client.call_tool("ssh_exec", {"argv": ["uname", "-r"]})

    result = desk.talk_here(talk)
    assert not result.is_error, text_of(result)
    assert any(message.startswith("tail_log: ") for message in seen)
    assert kinds(desk.events(), "c1")[-2:] == ["call.unknown", "call.reconciled"]
    assert kinds(desk.events(), "c2")[-1] == "call.finished"
    assert desk.intact()


def test_a_killed_server_leaves_a_journal_that_verifies_and_a_session_that_goes_on(desk: Desk) -> None:
    async def start(client: Client) -> None:
        wanted = body_of(await client.call_tool("write_file", WRITE))["approval"]
        assert cli.main(["approve", wanted["run"], wanted["call"], "--yes"], standalone_mode=False) == 0
        slow = asyncio.create_task(client.call_tool("tail_log", {"path": "/tmp/starting.log", "follow_s": 100000.0}))
        folder = desk.run_folder()
        while not slow.done() and not any(e["type"] == "call.started" for e in desk.events(folder)):
            await asyncio.sleep(0.05)
        os.kill(json.loads((folder / "lock").read_text())["pid"], signal.SIGKILL)
        with pytest.raises(MCPError):
            await slow

    desk.put("/tmp/starting.log", "a line\n")
    desk.talk(start)
    folder: Path = desk.run_folder()
    assert desk.events(folder)[-1]["type"] == "call.started"  # nothing was lost, and nothing is said to have ended
    assert desk.intact(folder)

    async def go_on(client: Client) -> Any:
        return await client.call_tool("write_file", WRITE)

    done = desk.talk_here(go_on, resume=folder.name)
    assert not done.is_error, text_of(done)  # the approval that was given still holds, once
    assert desk.intact(folder)


def test_an_approved_call_is_made_with_the_secret_that_the_journal_does_not_keep(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "cAnArY-0f1e2d3c4b5a6978"
    monkeypatch.setenv("DEPLOY_TOKEN", canary)
    args = {"path": "/tmp/server.conf", "content": f"key = {canary}\n"}

    async def talk(client: Client) -> None:
        wanted = body_of(await client.call_tool("write_file", args))["approval"]
        assert cli.main(["approve", wanted["run"], wanted["call"], "--yes"], standalone_mode=False) == 0
        done = await client.call_tool("write_file", args)
        assert not done.is_error, text_of(done)

    desk.talk_here(talk)
    assert desk.file("/tmp/server.conf") == args["content"]
    assert canary not in desk.everything()


LAUNCH = {
    "model": "/srv/models/Qwen3.6-27B", "python": "/opt/sglang-0.5.11/bin/python", "preflight": False, "port": 30017,
    "flags": ["--tp", "2", "--context-length", "32768", "--max-running-requests", "4"],
}  # fmt: skip


@pytest.mark.parametrize("when", [pytest.param("call.started", marks=pytest.mark.soak), "the unit runs"])
def test_a_server_killed_in_the_middle_of_a_launch_launches_exactly_once(desk: Desk, when: str) -> None:
    """Before or after the unit exists: the next session finds it, or starts it under the approval that was given."""

    def ready() -> bool:
        if when == "call.started":
            return any(e["type"] == "call.started" for e in desk.events())
        with desk.lab.world.lock:
            return any(
                unit.startswith(f"opsagent-{desk.run_folder().name}") for unit in desk.lab.world.hosts[desk.host].units
            )

    async def start(client: Client) -> None:
        wanted = body_of(await client.call_tool("launch_sglang", LAUNCH))["approval"]
        assert cli.main(["approve", wanted["run"], wanted["call"], "--yes"], standalone_mode=False) == 0
        slow = asyncio.create_task(client.call_tool("launch_sglang", LAUNCH))
        while not slow.done() and not ready():
            await asyncio.sleep(0.01)
        os.kill(json.loads((desk.run_folder() / "lock").read_text())["pid"], signal.SIGKILL)
        with pytest.raises(MCPError):
            await slow

    async def go_on(client: Client) -> tuple[Any, Any]:
        log = await client.call_tool("inspect_host", {})
        return log, await client.call_tool("launch_sglang", LAUNCH)

    def launches() -> int:
        return int(desk.lab.world.hosts[desk.host].counters.get("launches", 0))

    before = launches()
    desk.talk(start)
    folder = desk.run_folder()
    assert desk.intact(folder)
    looked, done = desk.talk_here(go_on, resume=folder.name)
    assert not looked.is_error
    if when == "call.started":
        assert not done.is_error, text_of(done)  # made now, under the approval that was given
    else:
        assert body_of(done)["approval"]["call"] != "c1"  # it runs already: this would be a second one
        assert kinds(desk.events(folder), "c1")[-1] == "call.finished"
    assert launches() == before + 1
    assert desk.intact(folder)
    assert cli.main(["stop", folder.name], standalone_mode=False) == 0
