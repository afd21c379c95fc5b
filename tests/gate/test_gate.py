"""The gate as the loop uses it: modes, bindings, single use, rechecks, limits, grants and taint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opsagent.call import Call, Decision, Scope, Verdict
from opsagent.gate import Gate, Policy
from opsagent.gate.approvals import MODES, Mode, expired, read_file, ruling
from opsagent.gate.facts import KnownFacts
from opsagent_tools.errors import InputError, PolicyDenied
from opsagent_tools.tool import Tier


def call(*argv: str, declared: bool = False, host: str = "gpu01", step: str = "launch", rollback: bool = False) -> Call:
    return Call(
        id="c1", tool="ssh_exec", host=host, args={"argv": list(argv)}, step=step, declared=declared, rollback=rollback
    )


@dataclass
class Says:
    """An approver with one answer; counts how often it was asked."""

    answer: Decision = field(default_factory=lambda: Decision("approve", "operator"))
    asked: int = 0

    def decide(self, call: Call, verdict: Verdict, *, rollback: str = "", diff: str = "") -> Decision:
        self.asked += 1
        return self.answer


@dataclass
class Changing:
    """A host whose facts are what `facts` says at the time of the question."""

    facts: dict[str, Any]
    configured: bool = True
    asked: list[str] = field(default_factory=list)

    def ask(self, keys: Iterable[str]) -> Mapping[str, Any]:
        wanted = list(keys)
        self.asked += wanted
        return {key: self.facts[key] for key in wanted if key in self.facts}


READ, R1, R2, R3 = ("uptime",), ("mkdir", "/srv/models/x"), ("systemctl", "restart", "sglang"), ("reboot",)
NEVER = ("cat", "/root/.ssh/id_rsa")


@pytest.mark.parametrize(
    ("mode", "declared", "expected"),
    [
        ("ask", True, {"R0": "runs", "R1": "runs", "R2": "asks", "R3": "asks", "X": "denied"}),
        ("ask", False, {"R0": "runs", "R1": "asks", "R2": "asks", "R3": "asks", "X": "denied"}),
        ("declared", True, {"R0": "runs", "R1": "runs", "R2": "waits", "R3": "waits", "X": "denied"}),
        ("declared", False, {"R0": "runs", "R1": "waits", "R2": "waits", "R3": "waits", "X": "denied"}),
        ("never", True, {"R0": "runs", "R1": "denied", "R2": "denied", "R3": "denied", "X": "denied"}),
    ],
)
def test_table_of_modes(mode: Mode, declared: bool, expected: dict[Tier, str]) -> None:
    for tier, want in expected.items():
        assert ruling(call(*READ, declared=declared), Verdict(tier, ()), mode) == want


@pytest.mark.parametrize("mode", MODES)
def test_x_is_refused_in_every_mode(mode: Mode) -> None:
    approver = Says()
    gate = Gate(Policy(), mode, approver)
    with pytest.raises(PolicyDenied) as stop:
        gate.admit(call(*NEVER, declared=True), gate.judge(call(*NEVER)))
    assert stop.value.exit_code == 6
    assert approver.asked == 0


def test_reads_run_without_a_question() -> None:
    approver = Says()
    gate = Gate(Policy(), "ask", approver)
    assert gate.admit(call(*READ), gate.judge(call(*READ))).by == "policy"
    assert approver.asked == 0


def test_nobody_to_ask_waits() -> None:
    asked: list[str] = []
    gate = Gate(Policy(), "declared")
    decision = gate.admit(call(*R2), gate.judge(call(*R2)), asking=lambda: asked.append("x"))
    assert decision.answer == "wait"
    assert asked == ["x"]


def test_pre_approval_is_for_one_call_on_one_host_once_and_never_for_r3() -> None:
    probe = Gate(Policy())
    wanted, dangerous = call(*R2), call(*R3)
    bindings = {probe.judge(each).binding(each) for each in (wanted, dangerous)}
    gate = Gate(Policy(), "declared", pre_approved=frozenset(bindings))
    elsewhere = call(*R2, host="gpu02")
    assert gate.admit(elsewhere, gate.judge(elsewhere)).answer == "wait"
    assert gate.admit(wanted, gate.judge(wanted)) == Decision("approve", "approve-file")
    assert gate.admit(wanted, gate.judge(wanted)).answer == "wait"
    assert gate.admit(dangerous, gate.judge(dangerous)).answer == "wait"


def test_binding_changes_with_every_part_of_the_call() -> None:
    gate = Gate(Policy())
    first = call(*R2)
    others = [call("systemctl", "restart", "other"), call(*R2, host="gpu02"), call(*R2, step="verify")]
    bindings = {gate.judge(each).binding(each) for each in (first, *others)}
    assert len(bindings) == 4


def test_a_link_on_the_host_is_followed_before_judging() -> None:
    facts = {"path:/srv/models/notes": {"real": "/root/.ssh/authorized_keys", "exists": True, "kind": "file"}}
    source = Changing(facts)
    gate = Gate(Policy(), facts=lambda _call: source)
    assert gate.judge(call("tee", "/srv/models/notes")).tier == "X"
    assert gate.judge(call("cat", "/srv/models/notes")).tier == "X"


def test_facts_that_change_between_approval_and_effect_void_it() -> None:
    source = Changing({"path:/srv/models/x": {"real": "/srv/models/x", "exists": False, "kind": ""}})
    gate = Gate(Policy(), "ask", Says(), facts=lambda _call: source)
    wanted = call(*R1)
    verdict = gate.judge(wanted)
    assert gate.admit(wanted, verdict).answer == "approve"
    gate.recheck(wanted, verdict)
    source.facts["path:/srv/models/x"] = {"real": "/etc/systemd/system", "exists": True, "kind": "dir"}
    with pytest.raises(PolicyDenied, match="changed after the approval"):
        gate.recheck(wanted, verdict)


def test_another_process_with_the_same_pid_voids_the_approval() -> None:
    ours = {"name": "python3", "start": 100, "unit": "opsagent-7f3a-c2.service"}
    source = Changing({"pid:4121": ours})
    gate = Gate(Policy(), "ask", Says(), facts=lambda _call: source, run="7f3a")
    wanted = call("kill", "-TERM", "4121")
    verdict = gate.judge(wanted)
    assert verdict.tier == "R1"
    source.facts["pid:4121"] = {"name": "nginx", "start": 900, "unit": "nginx.service"}
    with pytest.raises(PolicyDenied):
        gate.recheck(wanted, verdict)


def test_a_script_that_is_rewritten_after_the_approval_does_not_run() -> None:
    source = Changing(
        {"sha:/root/fix.sh": "a" * 64, "path:/root/fix.sh": {"real": "/root/fix.sh", "exists": True, "kind": "file"}}
    )
    gate = Gate(Policy(), "ask", Says(), facts=lambda _call: source)
    wanted = call("bash", "/root/fix.sh")
    verdict = gate.judge(wanted)
    assert verdict.tier == "R3"
    assert gate.admit(wanted, verdict).answer == "approve"
    gate.recheck(wanted, verdict)
    source.facts["sha:/root/fix.sh"] = "b" * 64
    with pytest.raises(PolicyDenied, match="changed after the approval"):
        gate.recheck(wanted, verdict)


def test_pid_of_another_run_is_not_ours() -> None:
    source = Changing({"pid:4121": {"name": "python3", "start": 1, "unit": "opsagent-aaaa-c2.service"}})
    gate = Gate(Policy(), facts=lambda _call: source, run="7f3a")
    verdict = gate.judge(call("kill", "4121"))
    assert verdict.tier == "R2"
    assert any("opsagent-aaaa-c2" in effect for effect in verdict.effects)


def test_program_in_a_strange_place_is_not_trusted() -> None:
    source = Changing({"exe:ls": "/tmp/ls"})
    gate = Gate(Policy(), facts=lambda _call: source)
    assert gate.judge(call("ls", "/")).tier == "R3"
    source.facts["exe:ls"] = "/usr/bin/ls"
    assert Gate(Policy(), facts=lambda _call: source).judge(call("ls", "/")).tier == "R0"


def test_a_host_that_does_not_answer_is_a_doubt() -> None:
    silent = Gate(Policy(), facts=lambda _call: Changing({}))
    assert silent.judge(call(*R1)).tier == "R2"
    assert silent.judge(call("cat", "/etc/hosts")).tier == "R0"


def test_a_program_that_was_missing_is_looked_for_again() -> None:
    source = Changing({"exe:nvidia-smi": None})
    gate = Gate(Policy(), "ask", Says(), facts=lambda _call: source)
    gate.judge(call("nvidia-smi"))
    source.facts["exe:nvidia-smi"] = "/usr/bin/nvidia-smi"
    wanted = call("nvidia-smi", "-pm", "1")
    gate.recheck(wanted, gate.judge(wanted))


def test_environments_under_an_allowed_root_may_be_used() -> None:
    policy = Policy(roots=("/data/envs", "/tmp"))
    assert Gate(policy).judge(call("/data/envs/sglang/bin/python", "--version")).tier == "R0"
    assert Gate(policy).judge(call("/data/envs/sglang/bin/ls")).tier == "R3"
    assert Gate(policy).judge(call("/tmp/sglang/bin/python", "--version")).tier == "R3"
    assert Gate(Policy()).judge(call("/data/envs/sglang/bin/python", "--version")).tier == "R3"


def test_without_a_host_everything_is_assumed_and_said() -> None:
    verdict = Gate(Policy()).judge(call("cat", "/etc/hosts"))
    assert verdict.tier == "R0"
    assert "/etc/hosts is not a link" in verdict.assumed


def test_what_was_created_by_the_run_may_be_removed_by_it() -> None:
    gate = Gate(Policy(), owned=lambda _host: frozenset({"/srv/models/mine"}))
    assert gate.judge(call("rm", "-rf", "/srv/models/mine/part")).tier == "R1"
    assert gate.judge(call("rm", "-rf", "/srv/models/theirs")).tier == "R3"
    assert gate.judge(call("rm", "-rf", "/srv/models/mine/../theirs")).tier == "R3"


def test_cap_of_a_host_holds_whatever_is_approved() -> None:
    gate = Gate(Policy(tier_caps={"gpu01": "R1"}), "ask", Says())
    with pytest.raises(PolicyDenied, match="admits at most R1"):
        gate.admit(call(*R2), gate.judge(call(*R2)))


def test_number_of_hosts_written_to_is_limited() -> None:
    gate = Gate(Policy(max_hosts_written=1), "ask", Says())
    first, second = call(*R1), call(*R1, host="gpu02")
    verdict = gate.judge(first)
    gate.admit(first, verdict)
    gate.recheck(first, verdict)
    gate.admit(first, verdict)
    with pytest.raises(PolicyDenied, match="written to 1 hosts"):
        gate.admit(second, gate.judge(second))
    assert gate.admit(call(*READ, host="gpu02"), gate.judge(call(*READ, host="gpu02"))).answer == "approve"


def test_outside_the_maintenance_window_only_reads_and_rollbacks_run() -> None:
    policy = Policy(maintenance_windows=("Sat 22:00-04:00 UTC",))
    friday = datetime(2026, 11, 27, 23, 0, tzinfo=UTC)
    shut = Gate(policy, "ask", Says(), now=lambda: friday)
    with pytest.raises(PolicyDenied, match="maintenance window"):
        shut.admit(call(*R1), shut.judge(call(*R1)))
    assert shut.admit(call(*READ), shut.judge(call(*READ))).answer == "approve"
    undo = call(*R1, rollback=True)
    assert shut.admit(undo, shut.judge(undo)).answer == "approve"
    later = Gate(policy, "ask", Says(), now=lambda: friday + timedelta(days=1, hours=4, minutes=30))
    assert later.admit(call(*R1), later.judge(call(*R1))).answer == "approve"


@pytest.mark.parametrize(
    ("scope", "same_step", "next_step", "other_args"), [("once", 2, 3, 4), ("step", 1, 2, 3), ("rule", 1, 1, 1)]
)
def test_scopes_of_an_approval(scope: Scope, same_step: int, next_step: int, other_args: int) -> None:
    approver = Says(Decision("approve", "operator", scope=scope))
    gate = Gate(Policy(), "ask", approver)

    def admit(each: Call) -> int:
        gate.admit(each, gate.judge(each))
        return approver.asked

    assert admit(call(*R2)) == 1
    assert admit(call(*R2)) == same_step
    assert admit(call(*R2, step="verify")) == next_step
    assert admit(call("systemctl", "restart", "other", step="other")) == other_args


def test_a_rule_is_not_the_whole_program_and_never_r3() -> None:
    approver = Says(Decision("approve", "operator", scope="rule"))
    gate = Gate(Policy(), "ask", approver)
    for index, words in enumerate([R2, ("systemctl", "stop", "sglang"), R3, R3], 1):
        gate.admit(call(*words), gate.judge(call(*words)))
        assert approver.asked == index


def test_after_an_untrusted_text_undeclared_writes_need_a_person() -> None:
    approver = Says(Decision("approve", "operator", scope="rule"))
    gate = Gate(Policy(), "ask", approver)
    gate.admit(call(*R2), gate.judge(call(*R2)))
    gate.tainted = True
    verdict = gate.judge(call(*R1))
    assert verdict.tier == "R2"
    assert any(reason.rule == "taint.undeclared-write" for reason in verdict.reasons)
    gate.admit(call(*R2), gate.judge(call(*R2)))
    assert approver.asked == 2
    assert gate.judge(call(*R1, declared=True)).tier == "R1"
    assert gate.judge(call(*READ)).tier == "R0"


def test_tools_and_hosts_that_the_runbook_leaves_out() -> None:
    policy = Policy(tools=("launch_sglang",), hosts=("gpu02",))
    verdict = Gate(policy).judge(call(*R1, declared=True))
    assert verdict.tier == "R2"
    assert {"allow.tool", "allow.host"} <= {reason.rule for reason in verdict.reasons}
    assert Gate(policy).judge(call(*READ)).tier == "R0"


def test_a_call_that_cannot_be_judged_is_r3() -> None:
    cases: list[dict[str, Any]] = [
        {},
        {"argv": []},
        {"argv": "ls"},
        {"argv": [["ls"], []]},
        {"argv": [1, 2]},
        {"stages": [[]]},
    ]
    for args in cases:
        verdict = Gate(Policy()).judge(Call(id="c1", tool="ssh_exec", host="gpu01", args=args))
        assert verdict.tier == "R3", args
    assert Gate(Policy()).judge(Call(id="c1", tool="no_such_tool", host="gpu01", args={})).tier == "R3"


def test_pre_approval_file(tmp_path: Any) -> None:
    path = tmp_path / "approved"
    path.write_text(f"# for tonight\n{'a' * 64}  # restart\n\n{'b' * 64}\n")
    assert read_file(path) == {"a" * 64, "b" * 64}
    path.write_text("all\n")
    with pytest.raises(InputError, match="not a call's hash"):
        read_file(path)


def test_approvals_expire() -> None:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    assert expired({"expires": (now - timedelta(seconds=1)).isoformat()}, now)
    assert not expired({"expires": (now + timedelta(seconds=1)).isoformat()}, now)
    assert not expired({}, now)


def test_known_facts_answer_only_what_is_asked() -> None:
    assert dict(KnownFacts({"exe:ls": "/bin/ls", "pid:1": None}).ask(["exe:ls"])) == {"exe:ls": "/bin/ls"}
