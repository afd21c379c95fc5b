"""A person at a real terminal, an LLM endpoint on loopback, a lab: proposal, yes, run, report, what if; Ctrl-C, kill."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chat.world import SMALL
from terminal import CTRL_C, CTRL_D, OPSAGENT, Session
from wire.server import USAGE, Answer, WireServer, call, delta, says, stream

from opsagent.chat.record import chats_root
from opsagent.cli.chat import command
from opsagent.fence import FENCED
from opsagent.journal.runs import open_run, runs_root
from opsagent.verify import verify
from opsagent_tools.errors import InputError
from opsagent_tools.sglang.words import tokens

FAST = [sys.executable, "-c", "from opsagent.cli import main; main()"]
PROMPT = "›"
LAUNCH = {"runbook": "launch", "params": {"want_context": 16384}, "why": "Qwen3-8B with a context of 16,384"}


def calling(name: str, arguments: dict[str, Any], text: str = "") -> Answer:
    entry = call(json.dumps(arguments), name=name, id="a", index=0)
    return stream(delta(content=text), delta(tool_calls=[entry]), delta("tool_calls"), USAGE)


@pytest.fixture
def lab(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def at_terminal(words: Sequence[str], server: WireServer | None, folder: Path) -> Session:
    env = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "EMPTY"} if server else {}
    llm = ["--llm", "m"] if server else []
    return Session([*OPSAGENT, "chat", *words, *llm], env, size=(110, 45), cwd=folder)


def leave(s: Session) -> str:
    """Ctrl-D at the next prompt; returns the chat's id."""
    s.expect(PROMPT)
    s.send(CTRL_D)
    chat = s.expect(r"opsagent chat --resume (\w+)").group(1)
    assert s.wait() == 0
    return chat


def test_the_story_of_a_chat(tmp_path: Path, lab: str) -> None:
    if_dropped = {"model": "/srv/models/Qwen3-8B", "want_context": 16384, "empty": True, "sglang": "0.5.11"}
    script = [
        calling("propose_run", LAUNCH, "I propose a launch.\n\n"), says("It is **up**.\n\nEnjoy."),
        calling("estimate_vram", if_dropped), says("As the planner says."),
    ]  # fmt: skip
    with WireServer(script) as server, at_terminal(["--lab", lab], server, tmp_path) as s:
        s.expect(r"LLM: m at 127\.0\.0\.1")
        s.expect(PROMPT)
        s.line("serve Qwen3-8B, I want long contexts")
        s.expect("I propose a launch")
        s.expect("Proposed run: launch")
        s.expect(r"want_context = 16384")
        predicted = s.expect(
            r"so it proposes .*: ([\d,]+) requests? at once, ([\d,]+) tokens\s+in\s+all,\s+context\s+16,384"
        )
        s.expect(r"Run it\?")
        s.line("y")
        s.expect("is serving on gpu1 · verified", 120)
        s.expect(rf"max running requests +{predicted.group(1)}, predicted {predicted.group(1)}")
        s.expect(r"It is up\.")
        s.expect(PROMPT)
        s.line("and how would it be alone on the card?")
        planned = s.expect(r"→ starts · ([\d,]+) requests · ([\d,]+) tokens")
        s.expect("As the planner says")
        s.expect(PROMPT)
        s.line("/report")
        s.expect("SIMULATED · run")
        s.expect(PROMPT)
        s.line("/stop")
        s.expect("launched on gpu1 and stopped again", 60)
        s.expect("stopped by the operator: 1 of 1 calls done")
        chat = leave(s)
        results = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "tool"]
    run = next(iter(runs_root().iterdir()))
    assert json.loads((run / "report.json").read_text())["weight_loads"] == 1
    told = json.loads(FENCED.findall(results[0])[0][2])
    assert (told["answer"], told["run"], told["status"]) == ("yes", run.name, "verified")
    alone = json.loads(FENCED.findall(results[1])[0][2])["result"]
    assert planned.group(1) == f"{alone['limits']['max_running_requests']:,}"
    assert planned.group(2) == tokens(alone["limits"]["max_total_num_tokens"])
    assert all(event.startswith(f"{run.name}/e") for limit in told["limits"] for event in limit["evidence"])
    notes = [event.data for event in open_run(chats_root() / chat).log.events if event.type == "note"]
    assert [n["phase"] for n in notes if n["kind"] == "chat.run"] == ["begun", "ended"] * 2  # made, stopped
    assert [n["answer"] for n in notes if n["kind"] == "chat.decided"] == ["yes"]
    assert verify(chats_root() / chat).ok
    assert verify(run).ok


def test_ctrl_c_cancels_an_answer_and_lines_can_be_several(tmp_path: Path, lab: str) -> None:
    slow = stream(delta(content="Well, let me think\n\n"), 60.0, delta("stop"), USAGE)
    with WireServer([slow, says("Here I am.")]) as server, at_terminal(["--lab", lab], server, tmp_path) as s:
        s.expect(PROMPT)
        s.line("hello")
        s.expect("let me think")
        s.send(CTRL_C)
        s.expect("cancelled")
        s.expect(PROMPT)
        s.send("one\x1b\rtwo\\\rthree\r")
        s.expect("Here I am")
        s.expect(PROMPT)
        s.send("a line that is dropped")
        s.send(CTRL_C)
        s.expect("Ctrl-D leaves")
        leave(s)
        assert server.requests[-1]["messages"][-1]["content"] == "one\ntwo\nthree"
        assert [m["role"] for m in server.requests[-1]["messages"]] == ["system", "user", "assistant", "user"]


def test_a_chat_that_was_killed_in_a_run_goes_on(tmp_path: Path, lab: str) -> None:
    with WireServer([calling("propose_run", LAUNCH)]) as server, at_terminal(["--lab", lab], server, tmp_path) as s:
        s.expect(PROMPT)
        s.line("serve it")
        s.expect(r"Run it\?")
        s.line("y")
        s.expect("▶ launch", 90)
        s.process.kill()
        s.wait()
    with WireServer([says("It is up after all.")]) as server, at_terminal(["--resume", "last"], server, tmp_path) as s:
        s.expect("was under way when this chat ended")
        s.expect(PROMPT)
        s.line("/resume")
        s.expect("is serving on gpu1 · verified", 120)
        s.expect(PROMPT)
        s.line("what happened?")
        s.expect("It is up after all")
        told = server.requests[-1]["messages"]
        assert [m["role"] for m in told] == ["system", "user", "assistant", "tool", "user"]
        assert "interrupted" in told[3]["content"]
        assert "/resume" in told[4]["content"]
        assert '"verified"' in told[4]["content"]
        leave(s)
    assert verify(next(iter(chats_root().iterdir()))).ok


def test_ctrl_c_in_a_run_ends_the_run_and_not_the_chat(tmp_path: Path, lab: str) -> None:
    with at_terminal(["--lab", lab], None, tmp_path) as s:
        s.expect("No LLM")
        s.expect(PROMPT)
        s.line("/run launch")
        s.expect(r"Run it\?")
        s.line("yes")
        s.expect("inventory")
        s.send(CTRL_C)
        run = s.expect(r"interrupted[\s\S]*?run (\w+) · /resume").group(1)
        s.expect(PROMPT)
        s.line("/runs")
        s.expect(rf"{run} +launch +interrupted")
        leave(s)


def test_a_chat_can_be_a_script(tmp_path: Path, lab: str) -> None:
    lines = "hello\n/hosts\n/plan /srv/models/Qwen3-8B --sglang 0.5.11\n/run launch\nn not now\n/nothing\n"
    done = subprocess.run(
        [*FAST, "chat", "--lab", lab],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert "No LLM is set" in done.stdout
    assert "SIMULATED" in done.stdout
    assert "Run it? [y]es · [c]hange · [n]o: n not now" in done.stdout
    assert "starts · " in done.stdout
    assert "\x1b" not in done.stdout
    assert done.returncode == 2  # the last thing, /nothing, is no command
    again = subprocess.run(
        [*FAST, "chat", "--resume", "last"],
        input="/quit\n",
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert again.returncode == 0


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["--resume", "zzzz"], "chat"), (["--resume", "last"], "no chats"), (["--lab", "nothing"], "nothing"),
     (["--host", "target=nowhere-at-all"], "nowhere-at-all"), (["--resume", "x", "--lab", "dense"], "--resume"),
     (["--lab", "dense", "--llm", "replay:x"], "replay"), (["--lab", "dense", "--host", "local"], "--lab")],
)  # fmt: skip
def test_bad_input_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], hint: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        command.main(words, standalone_mode=False)
    assert hint in f"{caught.value.what} {caught.value.hint}"
    assert not list(chats_root().glob("*/events.jsonl"))
