"""`doctor`: what it finds, and the exit code of each finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from wire.server import USAGE, WireServer, call, completion, delta, fault, says, stream

from opsagent.cli.doctor import command


def run(*args: str) -> tuple[int, dict[str, dict[str, object]]]:
    result = CliRunner().invoke(command, [*args, "--json"], standalone_mode=False)
    assert result.exception is None, result.exception
    body = json.loads(result.stdout)
    assert body["exit_code"] == result.return_value
    return body["exit_code"], {check["name"]: check for check in body["checks"]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("OPSAGENT_LLM", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_this_machine_is_fine() -> None:
    code, checks = run()
    assert code == 0
    assert checks["runs folder"]["ok"] is True


def test_a_folder_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    code, checks = run()
    assert code == 2
    assert checks["runs folder"]["ok"] is False


def test_this_machine_as_a_host_and_an_unknown_one() -> None:
    assert run("--host", "local")[1]["local"]["ok"] is True
    code, checks = run("--host", "no-such-host.invalid")
    assert code in (2, 3)
    assert checks["no-such-host.invalid"]["ok"] is False


def test_an_endpoint_that_makes_tool_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [call('{"word": "pong"}', name="ping", id="a", index=0)]
    script = [
        stream(delta(tool_calls=made), delta("tool_calls"), USAGE),
        completion({"tool_calls": made}, "tool_calls"),
    ]
    with WireServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        code, checks = run("--llm", "m")
    assert code == 0
    assert [checks[f"{kind} tool call"]["ok"] for kind in ("streamed", "whole")] == [True, True]


def test_an_endpoint_that_makes_none_or_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with WireServer([says("pong"), completion({"content": "pong"})]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert run("--llm", "m")[0] == 8
    with WireServer([fault(401)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert run("--llm", "m")[0] == 2
