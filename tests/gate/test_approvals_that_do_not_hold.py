"""Approvals from before a stop: used once, in time, for this very call, and never beyond what the gate permits now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeHost
from gate.world import Person, open_folder, wants

from opsagent.approving import grants_of, used_up
from opsagent.call import Call, Decision
from opsagent.execute import binding, execute, prepare
from opsagent.gate import Gate, Mode, Policy
from opsagent.gate.facts import KnownFacts
from opsagent.redact import Redactor
from opsagent.run import Run
from opsagent.settling import settle
from opsagent.signals import NeedApproval

RESTART = ("systemctl", "restart", "sglang")
SHUT = f"{(datetime.now(UTC) + timedelta(days=3)):%a} 00:00-00:01 UTC"


def close(run: Run) -> None:
    run.journal.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("policy", "mode"),
    [
        (Policy(), "never"),
        (Policy(tier_caps={"box": "R1"}), "ask"),
        (Policy(maintenance_windows=(SHUT,)), "ask"),
        (Policy(max_hosts_written=0), "ask"),
    ],
)
def test_an_approval_lifts_no_limit_that_holds_when_the_call_is_made(
    tmp_path: Path, policy: Policy, mode: Mode
) -> None:
    run = open_folder(tmp_path / "run", None)
    with pytest.raises(NeedApproval):
        execute(run, prepare(run, wants(*RESTART)))
    known = run.journal.state.calls["c1"]
    run.emit("approval.decided", call="c1", answer="approve", by="operator", binding=known.verdict["binding"])
    close(run)
    host = FakeHost()
    run = open_folder(tmp_path / "run", None, policy=policy, mode=mode, host=host)
    settle(run)
    assert run.journal.state.calls["c1"].status == "refused"
    assert host.commands == []


def test_a_grant_expires_like_the_approval_that_it_came_with(tmp_path: Path) -> None:
    run = open_folder(tmp_path / "run", Person([Decision("approve", "operator", scope="rule")]))
    execute(run, prepare(run, wants("mkdir", "/srv/models/x")))
    (known,) = run.journal.state.calls.values()
    policy = run.policy
    for minutes, grants in ((-1, 0), (1, 1)):
        known.decision["expires"] = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()
        assert len(grants_of(run.journal.state, policy)) == grants


def test_a_hash_of_the_pre_approval_file_holds_once_in_a_run_also_after_a_stop(tmp_path: Path) -> None:
    run = open_folder(tmp_path / "run", None, mode="declared")
    call = prepare(run, wants(*RESTART)).call
    named = frozenset({binding(run, call, run.gate.judge(call))})
    assert isinstance(run.gate, Gate)
    run.gate.pre_approved = named
    execute(run, prepare(run, wants(*RESTART)))
    with pytest.raises(NeedApproval):
        execute(run, prepare(run, wants(*RESTART)))
    close(run)
    run = open_folder(tmp_path / "run", None, mode="declared")
    assert isinstance(run.gate, Gate)
    run.gate.pre_approved, run.gate.used = named, used_up(run.journal.state)
    with pytest.raises(NeedApproval):
        execute(run, prepare(run, wants(*RESTART)))


def test_what_only_looks_like_a_secret_is_no_place_for_another_call() -> None:
    """Two calls that are alike once their secrets are taken out are two calls: hashes and grants are for neither."""
    safe = Redactor().value
    asked = Person([Decision("approve", "operator", scope="step")])
    gate = Gate(Policy(), "ask", asked, facts=lambda _call: KnownFacts({}), safe=lambda value: safe(value)[0])
    calls = [_write(f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n") for text in ("one", "two")]
    bound = {gate.judge(call).binding(call, gate.safe) for call in calls}
    assert len(bound) == 1
    gate.pre_approved = frozenset(bound)
    for call in calls:
        gate.admit(call, gate.judge(call))
    assert [call.id for call in asked.asked] == ["one", "two"]


def _write(content: str) -> Call:
    args: dict[str, Any] = {"path": "/srv/models/x", "content": content}
    name = content.splitlines()[1]
    return Call(id=name, tool="write_file", role="target", host="box", args=args, step="look")
