"""Recorded runs replay without hosts or model; every change is found, at the first place where it shows."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop.world import TOOLS, TWO_STEPS, AddArgs, CounterHost, ScriptedGate
from replay.record import record

from opsagent.call import Decision
from opsagent.journal import read_log
from opsagent.journal.format import digest, encode
from opsagent.models.scripted import ScriptedModel, calls, says
from opsagent.protocols import Event
from opsagent.replay.recording import Recording
from opsagent.replay.run import Mode, Outcome, replay
from opsagent_tools.errors import HostUnreachable, OutcomeUnknown, ToolFailed


def again(folder: Path, mode: Mode = "strict") -> Outcome:
    return replay(Recording.open(folder), mode, tools=TOOLS)


def types(folder: Path) -> list[str]:
    return [event.type for event in read_log(folder).events]


def rewrite(folder: Path, change: Callable[[Event], dict[str, Any] | None]) -> None:
    """Change recorded events and mend the chain, as a careful liar would."""
    prev, lines = "", []
    for event in read_log(folder).events:
        data = change(event)
        line = encode(Event(event.seq, event.ts, event.type, event.data if data is None else data, prev))
        prev = digest(line)
        lines.append(line)
    (folder / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")


def test_a_run_replays_to_the_same_journal(tmp_path: Path) -> None:
    record(tmp_path)
    outcome = again(tmp_path)
    assert outcome.ok, outcome.divergence
    assert (outcome.events, outcome.status) == (len(types(tmp_path)), "verified")
    assert again(tmp_path, "sequential").ok
    assert again(tmp_path, "loose").ok


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([OutcomeUnknown("link lost")], "call.reconciled"),
        ([ToolFailed("no", hint="look")], "call.failed"),
        ([HostUnreachable("gone")], "call.failed"),
    ],
)
def test_what_went_wrong_goes_wrong_again(tmp_path: Path, faults: list[Exception], expected: str) -> None:
    record(tmp_path, host=CounterHost(faults=faults))
    assert expected in types(tmp_path)
    outcome = again(tmp_path)
    assert outcome.ok, outcome.divergence
    assert outcome.events == len(types(tmp_path))


@pytest.mark.parametrize(
    "gate",
    [
        ScriptedGate(answers={"add": Decision("reject", by="operator", reason="not today")}),
        ScriptedGate(answers={"add": Decision("approve", by="operator")}),
        ScriptedGate(answers={"add": Decision("wait", by="nobody")}),
        ScriptedGate(answers={"add": Decision("stop", by="operator")}),
        ScriptedGate(denied={"add"}),
        ScriptedGate(stale={"add"}),
    ],
    ids=["reject", "approve", "wait", "stop", "denied", "stale"],
)
def test_decisions_are_made_again(tmp_path: Path, gate: ScriptedGate) -> None:
    record(tmp_path, gate=gate)
    outcome = again(tmp_path)
    assert outcome.ok, outcome.divergence
    assert outcome.events == len(types(tmp_path))


def test_a_run_that_waited_and_was_resumed(tmp_path: Path) -> None:
    host = CounterHost()
    record(tmp_path, host=host, gate=ScriptedGate(answers={"add": Decision("wait", by="nobody")}))
    record(tmp_path, host=host, resume=True)
    assert host.effects
    outcome = again(tmp_path)
    assert outcome.ok, outcome.divergence
    assert (outcome.events, outcome.status) == (len(types(tmp_path)), "verified")


@pytest.mark.parametrize("lines", range(2, 12))
def test_a_run_that_died_anywhere_and_was_resumed(tmp_path: Path, lines: int) -> None:
    host = CounterHost()
    record(tmp_path, host=host)
    path = tmp_path / "events.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:lines]) + b'{"v":1,"torn')
    dead = again(tmp_path)
    assert dead.ok, dead.divergence
    assert (dead.incomplete, dead.events) == (True, lines)
    host = CounterHost(value=2 if "call.started" in b"".join(whole[:lines]).decode() else 0)
    host.effects = ["c1+2"] if host.value else []
    record(tmp_path, host=host, resume=True)
    outcome = again(tmp_path)
    assert outcome.ok, outcome.divergence
    assert outcome.events == len(types(tmp_path))


def llm() -> ScriptedModel:
    return ScriptedModel(
        [
            calls(("add", {"by": "${goal}", "host": "box", "as": "added"}), text="I add."),
            says("made"),
            calls(("raed", {})),
            calls(("read", {"least": 2, "host": "box", "as": "seen"})),
            says("seen"),
            calls(("finish", {})),
        ],
        name="m",
    )


def test_the_run_of_an_llm_replays_every_request(tmp_path: Path) -> None:
    model = llm()
    record(tmp_path, model=model)
    model.assert_used_up()
    outcome = again(tmp_path)
    assert outcome.ok, outcome.divergence
    assert (outcome.events, outcome.status) == (len(types(tmp_path)), "verified")
    assert types(tmp_path).count("model.request") == 6


CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "a result": ("call.finished", lambda data: data["result"].update(value=7)),
    "an argument": ("call.intent", lambda data: data["call"]["args"].update(by=9)),
    "a check": ("step.check", lambda data: data.update(ok=False)),
    "a tool": ("call.intent", lambda data: data["call"].update(tool="smash")),
    "a status": ("run.finished", lambda data: data.update(status="failed")),
    "a tier": ("call.intent", lambda data: data["verdict"].update(binding="0" * 64)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_recording_is_found_out(tmp_path: Path, name: str) -> None:
    record(tmp_path)
    kind, change = CHANGES[name]
    done: list[str] = []

    def changed(event: Event) -> dict[str, Any] | None:
        if event.type != kind or done:
            return None
        done.append(event.id)
        data = json.loads(json.dumps(event.data))
        change(data)
        return dict(data)

    rewrite(tmp_path, changed)
    outcome = again(tmp_path)
    assert done
    assert not outcome.ok
    assert outcome.divergence is not None
    assert outcome.divergence.event.startswith("e")


def test_another_system_prompt_was_never_recorded_another_message_diverges(tmp_path: Path) -> None:
    record(tmp_path, model=llm())

    def other(place: int) -> Callable[[Event], dict[str, Any] | None]:
        def change(event: Event) -> dict[str, Any] | None:
            if event.type != "model.request" or event.data["keep"]:
                return None
            data = json.loads(json.dumps(event.data))
            data["new"][place]["content"] = "X" + data["new"][place]["content"]
            return dict(data)

        return change

    rewrite(tmp_path, other(0))
    first = again(tmp_path).divergence
    assert first is not None
    assert "never recorded" in first.what
    rewrite(tmp_path, other(0))
    assert not again(tmp_path).ok
    assert again(tmp_path, "sequential").ok


def test_another_model_over_recorded_results(tmp_path: Path) -> None:
    record(tmp_path)
    other = llm()
    outcome = replay(Recording.open(tmp_path), "loose", model=other, tools=TOOLS)
    assert outcome.status == "verified"
    greedy = ScriptedModel(
        [calls(("add", {"by": 5, "host": "box", "as": "added"})), calls(("add", {"by": 6, "host": "box"}))]
    )
    missed = replay(Recording.open(tmp_path), "loose", model=greedy, tools=TOOLS)
    assert missed.divergence is not None
    assert "no recorded result left" in missed.divergence.what
    assert missed.differences


def test_sequential_wants_the_tools_in_their_order(tmp_path: Path) -> None:
    record(tmp_path)
    other = ScriptedModel([calls(("read", {"host": "box"}))])
    missed = replay(Recording.open(tmp_path), "sequential", model=other, tools=TOOLS)
    assert missed.divergence is not None
    assert "call 1 diverged" in missed.divergence.what


def test_a_replay_imports_neither_openai_nor_paramiko(tmp_path: Path) -> None:
    record(tmp_path, body=TWO_STEPS)
    code = (
        "import sys; sys.argv = ['opsagent', 'replay', sys.argv[1]]\n"
        "from opsagent.cli import cli\n"
        "try: cli.main(standalone_mode=False)\n"
        "finally: print({'openai', 'paramiko', 'fabric', 'asyncssh', 'httpx2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("set()"), done.stdout + done.stderr


def test_a_tool_that_learned_a_new_argument_still_replays(tmp_path: Path) -> None:
    schemas = {name: tool.args.model_json_schema() for name, tool in TOOLS.items()}
    record(tmp_path, schemas=schemas)

    class NewArgs(AddArgs):
        careful: bool = True

    newer = {**TOOLS, "add": dataclasses.replace(TOOLS["add"], args=NewArgs)}
    assert replay(Recording.open(tmp_path), tools=newer).ok
    record(tmp_path / "without")
    assert not replay(Recording.open(tmp_path / "without"), tools=newer).ok
