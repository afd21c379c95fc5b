"""What is written down of a call that carries a secret: a hash from which nobody can guess it, and which still binds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from fakes import FakeHost
from gate.world import Person, open_folder, wants

from opsagent.call import Call, Decision, canonical
from opsagent.execute import execute, prepare
from opsagent.gate import Gate, Policy
from opsagent.gate.facts import KnownFacts
from opsagent.settling import settle
from opsagent.signals import NeedApproval
from opsagent_tools.errors import PolicyDenied

PIN = "84120597"  # 10^8 guesses are nothing
ARGV = ("systemctl", "restart", "sglang")


def waiting(folder: Path, host: FakeHost) -> None:
    run = open_folder(folder, None, secrets={"pin": PIN}, host=host)
    try:
        execute(run, prepare(run, wants(*ARGV, stdin=f"pin {PIN}")))
    except NeedApproval:
        run.journal.close()  # type: ignore[attr-defined]
        return
    raise AssertionError("nobody was there to ask")


def test_the_secret_cannot_be_tried_out_against_the_journal(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    waiting(folder, FakeHost())
    text = (folder / "events.jsonl").read_text()
    intent = next(json.loads(line) for line in text.splitlines() if '"call.intent"' in line)
    call, verdict = intent["data"]["call"], intent["data"]["verdict"]
    assert PIN not in text
    for guess in (PIN, f"pin {PIN}"):
        args = {**call["args"], "stdin": guess}
        bound = [call["tool"], args, call["host"], verdict["facts"], call["step"], verdict["tier"]]
        assert hashlib.sha256(canonical(bound).encode()).hexdigest() not in text


def test_an_approval_from_another_process_is_used_with_the_secret(tmp_path: Path) -> None:
    folder, host = tmp_path / "run", FakeHost()
    waiting(folder, host)
    run = open_folder(folder, None, secrets={"pin": PIN}, host=host)
    known = run.journal.state.calls["c1"]
    run.emit("approval.decided", call="c1", answer="approve", by="operator", binding=known.verdict["binding"])
    seen: list[str] = []
    host.programs["systemctl"] = lambda _host, _argv, stdin: (seen.append(stdin), (0, "", ""))[1]  # type: ignore[func-returns-value]
    settle(run)
    assert known.status == "finished"
    assert seen == [f"pin {PIN}"]


def test_without_the_secret_the_call_is_not_made_with_its_mark(tmp_path: Path) -> None:
    folder, host = tmp_path / "run", FakeHost()
    waiting(folder, host)
    run = open_folder(folder, None, host=host)
    known = run.journal.state.calls["c1"]
    run.emit("approval.decided", call="c1", answer="approve", by="operator", binding=known.verdict["binding"])
    settle(run)
    assert known.status == "refused"
    assert not any(argv[0] == "systemctl" for argv in host.commands)


def test_in_memory_another_secret_is_another_call() -> None:
    marks = {"secret": "[redacted:pin]"}
    gate = Gate(Policy(), facts=lambda _call: KnownFacts({}), safe=lambda _value: marks)
    one = Call(id="c1", tool="ssh_exec", host="box", args={"argv": list(ARGV), "stdin": PIN})
    other = one.model_copy(update={"args": {"argv": ["systemctl", "restart", "nginx"], "stdin": "1"}})
    verdict = gate.judge(one)
    gate.recheck(one, verdict)
    changed = gate.judge(other)
    assert verdict.binding(one, gate.safe) == changed.binding(other, gate.safe)
    assert verdict.binding(one) != changed.binding(other)


def test_pre_approval_of_a_call_with_a_secret(tmp_path: Path) -> None:
    """The hash that a waiting run shows is the one that the next run looks for."""
    folder = tmp_path / "one"
    waiting(folder, FakeHost())
    text = (folder / "events.jsonl").read_text()
    told = next(json.loads(line)["data"]["binding"] for line in text.splitlines() if '"approval.requested"' in line)
    run = open_folder(tmp_path / "two", None, secrets={"pin": PIN})
    assert isinstance(run.gate, Gate)
    run.gate.pre_approved = frozenset({told})
    execute(run, prepare(run, wants(*ARGV, stdin=f"pin {PIN}")))
    assert run.journal.state.calls["c1"].decision["by"] == "approve-file"


def test_a_person_reads_what_takes_it_back(tmp_path: Path) -> None:
    person = Person([Decision("reject", "operator")])
    run = open_folder(tmp_path / "run", person)
    execute(run, prepare(run, wants(*ARGV)))
    assert "/srv/models/x" in person.rollbacks[0]
    assert run.journal.state.calls["c1"].rollback == person.rollbacks[0]


def test_a_tool_outside_allow_is_refused_even_for_a_read() -> None:
    gate = Gate(Policy(tools=("tail_log",)), "ask", Person())
    read = Call(id="c1", tool="ssh_exec", host="box", args={"argv": ["uptime"]})
    with pytest.raises(PolicyDenied) as denied:
        gate.admit(read, gate.judge(read))
    assert denied.value.exit_code == 6
    declared = read.model_copy(update={"declared": True})
    assert gate.admit(declared, gate.judge(declared)).answer == "approve"
