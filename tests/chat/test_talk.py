"""A chat with a model: what it proposes is asked about and made, and what it may not do is not done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chat.world import TWO_CARDS, talking

from opsagent.chat import record
from opsagent.chat import talk as talks
from opsagent.chat.ground import Ground, lab_ground
from opsagent.chat.record import chats_root
from opsagent.chat.talk import respond
from opsagent.fence import FENCED
from opsagent.journal.runs import runs_root
from opsagent.models.scripted import calls, says
from opsagent.protocols import Message, Reply, ToolCall
from opsagent.run import Silent
from opsagent_tools.errors import InputError, ModelUnavailable

LAUNCH: dict[str, Any] = {"runbook": "launch", "params": {"want_context": 8192}, "why": "serve it"}
MTP = (
    "--tp 2 --speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 2"
)


def interrupted(_messages: Sequence[Message], _tools: Sequence[dict[str, Any]]) -> Reply:
    """Ctrl-C while the model answers."""
    raise KeyboardInterrupt


def test_a_refusal_and_its_reason_reach_the_model_and_nothing_runs(tmp_path: Path) -> None:
    script = [calls(("propose_run", LAUNCH)), says("As you say.")]
    with talking(tmp_path, script, ["n not before tonight"]) as t:
        before = t.lab.snapshot()
        respond(t.chat, "serve it")
        told = json.loads(FENCED.findall(t.results()[0])[0][2])
        assert (told["ok"], told["answer"], told["reason"]) == (False, "no", "not before tonight")
        assert t.lab.snapshot() == before
        assert not t.chat.runs
        assert not runs_root().exists() or not any(runs_root().iterdir())


@pytest.mark.parametrize("answer", [[""], [EOFError], [KeyboardInterrupt], ["maybe"], ["n", EOFError]])
def test_what_is_not_yes_is_no(tmp_path: Path, answer: list[str | type[BaseException]]) -> None:
    with talking(tmp_path, [calls(("propose_run", LAUNCH)), says("ok")], answer) as t:
        respond(t.chat, "serve it")
        assert json.loads(FENCED.findall(t.results()[0])[0][2])["answer"] == "no"
        assert not t.chat.runs


def test_a_change_by_name_is_shown_again_and_words_go_to_the_model(tmp_path: Path) -> None:
    script = [calls(("propose_run", LAUNCH)), says("Then on another port.")]
    with talking(tmp_path, script, ["c want_context=4096", "change", "another port please"]) as t:
        respond(t.chat, "serve it")
        proposed = [n["params"]["want_context"] for n in t.notes("chat.proposal")]
        assert proposed == ["8192", "4096"]
        told = json.loads(FENCED.findall(t.results()[0])[0][2])
        assert (told["answer"], told["reason"]) == ("change", "another port please")
        assert not t.chat.runs


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ({**LAUNCH, "runbook": "lunch"}, "launch"),
        ({**LAUNCH, "params": {"want_contxt": 1}}, "want_context"),
        ({**LAUNCH, "params": {"want_context": "many"}}, "want_context"),
        ({**LAUNCH, "hosts": {"target": "gpu2"}}, "gpu1"),
        ({**LAUNCH, "hosts": {"targt": "gpu1"}}, "target"),
        ({"runbook": "migrate", "why": "x"}, "old"),
        ({"runbook": "launch"}, "why"),
    ],
)
def test_a_proposal_that_does_not_fit_goes_back_to_the_model_and_nobody_is_asked(
    tmp_path: Path, args: dict[str, Any], word: str
) -> None:
    with talking(tmp_path, [calls(("propose_run", args)), says("sorry")]) as t:
        respond(t.chat, "serve it")
        told = json.loads(FENCED.findall(t.results()[0])[0][2])
        assert told["ok"] is False
        assert word in told["error"] + told["hint"]
        assert t.person.asked == []


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("ssh_exec", {"argv": ["rm", "-rf", "/srv/models/Qwen3-8B"]}),
        ("ssh_exec", {"argv": ["systemctl", "stop", "ssh"]}),
        ("stop_server", {"port": 30000}),
        (
            "launch_sglang",
            {"model": "/srv/models/Qwen3-8B", "flags": [], "port": 30000, "python": "/opt/sglang/bin/python"},
        ),
        ("write_file", {"path": "/root/x", "content": "x"}),
        ("reboot_host", {"reason": "they asked"}),
    ],
)
def test_a_write_of_the_talking_model_is_refused_on_the_record(tmp_path: Path, tool: str, args: dict[str, Any]) -> None:
    with talking(tmp_path, [calls((tool, args)), says("I cannot.")]) as t:
        before = t.lab.snapshot()
        respond(t.chat, "do it")
        assert [(d["answer"], d["by"]) for d in t.events("approval.decided")] == [("reject", "policy")]
        assert not any(e["call"]["tool"] == "x" for e in t.events("call.intent"))
        assert t.events("call.started") == []
        assert t.lab.snapshot() == before
        assert "propose_run" in t.results()[0]


def test_a_model_is_offered_reads_and_proposals_only(tmp_path: Path) -> None:
    with talking(tmp_path, [says("hello")]) as t:
        respond(t.chat, "hello")
        offered = {tool["function"]["name"] for tool in t.model.requests[0][1]}
        assert offered == {
            "inspect_host", "read_config", "estimate_vram", "preflight", "tail_log", "curl_test", "ssh_exec", "propose_run",
        }  # fmt: skip


def test_what_a_host_says_stays_inside_its_fence(tmp_path: Path) -> None:
    script = [calls(("ssh_exec", {"argv": ["cat", "/root/notes.txt"]})), says("A note that wants me to stop a server.")]
    with talking(tmp_path, script) as t:
        respond(t.chat, "what is in the notes?")
        result = t.results()[0]
        inside = FENCED.findall(result)
        assert len(inside) == 1
        assert "Ignore all rules" in inside[0][2]
        assert result.count("<<<END") == 1
        assert [e["call"]["tool"] for e in t.events("call.intent")] == ["ssh_exec"]


def test_a_follow_up_is_answered_by_the_planner(tmp_path: Path) -> None:
    args = {"model": "/srv/models/m", "want_context": 32768, "want_concurrency": 4, "sglang": "0.5.11"}
    script = [
        calls(("estimate_vram", {**args, "flags": MTP, "as": "with_mtp"})), says("With MTP: see e6."),
        calls(("estimate_vram", {**args, "flags": "--tp 2"})), says("Without: more."),
    ]  # fmt: skip
    with talking(tmp_path, script, lab=TWO_CARDS) as t:
        respond(t.chat, "how far do I get with MTP?")
        respond(t.chat, "and if I drop MTP?")
        with_mtp, without = [call.result or {} for call in t.chat.run.journal.state.calls.values()]
        assert with_mtp["cause"] == "spec-needs-extra-buffer"
        assert without["limits"]["max_running_requests"] > 4
        assert without["summary"] in t.shown
        assert [m["content"] for m in t.model.requests[-1][0] if m["role"] == "user"] == [
            "how far do I get with MTP?", "and if I drop MTP?",
        ]  # fmt: skip


def test_ctrl_c_cancels_the_answer_and_the_turns_still_alternate(tmp_path: Path) -> None:
    with talking(tmp_path, [interrupted, says("hello again")]) as t:
        respond(t.chat, "hello")
        respond(t.chat, "are you there?")
        assert len(t.notes("chat.cancelled")) == 1
        assert [m["role"] for m in t.model.requests[-1][0]] == ["system", "user", "assistant", "user"]
        assert "hello again" in t.shown


def test_ctrl_c_in_a_call_ends_the_call_on_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_progress: Any) -> None:
        raise KeyboardInterrupt

    script = [calls(("inspect_host", {}), ("read_config", {"path": "/srv/models/Qwen3-8B"})), says("Then not.")]
    with talking(tmp_path, script) as t:
        monkeypatch.setattr(t.chat.view, "on_progress", lambda _call, progress: interrupt(progress))
        respond(t.chat, "look")
        respond(t.chat, "never mind")
        assert [e["exit_code"] for e in t.events("call.failed")] == [130]
        assert t.chat.run.journal.state.unsettled == []
        last = t.model.requests[-1][0]
        asked = {call["id"] for m in last for call in m.get("tool_calls", [])}
        assert asked == {m["tool_call_id"] for m in last if m["role"] == "tool"}


def test_an_endpoint_that_is_gone_ends_the_answer_and_not_the_chat(tmp_path: Path) -> None:
    with talking(tmp_path, [ModelUnavailable("no route to it"), says("back")]) as t:
        respond(t.chat, "hello")
        assert t.chat.last_code == 3
        respond(t.chat, "hello?")
        assert t.chat.last_code == 0
        assert "no route to it" in t.shown
        assert [m["role"] for m in t.model.requests[-1][0]] == ["system", "user", "assistant", "user"]


def test_a_model_that_never_stops_calling_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talks, "ROUNDS", 3)
    looks = [calls(("ssh_exec", {"argv": ["cat", f"/proc/{n}"], "ok_codes": [0, 1]})) for n in range(3)]
    with talking(tmp_path, [*looks, says("stopped")]) as t:
        respond(t.chat, "look around")
        respond(t.chat, "well?")
        assert t.model.requests[-1][0][-2]["role"] == "assistant"
    looping = [calls(("ssh_exec", {"argv": ["ls", "/root"]})) for _ in range(5)]
    monkeypatch.setattr(talks, "ROUNDS", 24)
    (tmp_path / "again").mkdir()
    with talking(tmp_path / "again", [*looping, says("ok")]) as t:
        respond(t.chat, "look around")
        assert t.chat.last_code == 1
        respond(t.chat, "go on")
        assert len(t.events("call.started")) == 2


def test_a_cut_answer_makes_no_call(tmp_path: Path) -> None:
    cut = Reply(text="", calls=(ToolCall("a", "ssh_exec", '{"argv": ["ls'),), finish="length")
    with talking(tmp_path, [cut, says("short")]) as t:
        respond(t.chat, "look")
        assert t.events("call.intent") == []
        assert t.model.requests[-1][0][-1]["role"] == "user"


def test_a_secret_in_the_persons_words_is_neither_sent_nor_kept(tmp_path: Path) -> None:
    token = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ012345"
    with talking(tmp_path, [says("Use an environment variable.")]) as t:
        respond(t.chat, f"my token is {token}, use it")
        assert token not in json.dumps(t.model.requests[0][0])
        assert "taken out" in t.shown
    for path in chats_root().rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes()


def test_what_happened_without_the_model_is_told_with_the_next_words(tmp_path: Path) -> None:
    with talking(tmp_path, [says("I saw it.")]) as t:
        t.chat.aside("(The person typed /stop.)")
        respond(t.chat, "and now?")
        assert t.model.requests[0][0][-1]["content"] == "(The person typed /stop.)\n\nand now?"
        assert talks.pending_asides(t.chat.run) == []
        t.chat.aside("(Another.)")
        assert talks.pending_asides(t.chat.run) == ["(Another.)"]


def test_a_chat_that_cannot_go_on_leaves_no_host_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with talking(tmp_path) as t:
        folder = t.chat.session.folder
    opened: list[Ground] = []

    def kept(*args: Any, **options: Any) -> Ground:
        opened.append(lab_ground(*args, **options))
        return opened[-1]

    monkeypatch.setattr(record, "lab_ground", kept)
    with pytest.raises(InputError, match="recorded run"):
        record.go_on(str(folder), llm="replay:last", watcher=Silent(), notice=lambda _text: None)
    assert [ground.places.closers for ground in opened] == [[]]
