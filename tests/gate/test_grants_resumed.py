"""What a person allowed for a step or a rule holds after a stop: by the journal, under the same policy, no further."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate.world import Person, open_folder, wants

from opsagent.call import Decision, Scope
from opsagent.execute import execute, prepare
from opsagent.gate import Policy
from opsagent.gate.policy import PolicyRule

STRICTER = Policy(rules=(PolicyRule("no-tea", "R2", "not now", prefix=("tea",)),))


def allowed(folder: Path, scope: Scope) -> None:
    person = Person([Decision("approve", "operator", scope=scope)])
    run = open_folder(folder, person)
    execute(run, prepare(run, wants("mkdir", "/srv/models/x")))
    assert len(person.asked) == 1
    run.journal.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("scope", "same_call", "other_path", "other_step"), [("once", 1, 1, 1), ("step", 0, 1, 1), ("rule", 0, 0, 0)]
)
def test_a_grant_holds_after_a_stop(
    tmp_path: Path, scope: Scope, same_call: int, other_path: int, other_step: int
) -> None:
    folder = tmp_path / "run"
    allowed(folder, scope)
    for step, path, asked in (("look", "x", same_call), ("look", "y", other_path), ("then", "x", other_step)):
        person = Person([Decision("reject", "operator")])
        run = open_folder(folder, person)
        run.emit("step.entered", step=step, title="")
        execute(run, prepare(run, wants("mkdir", f"/srv/models/{path}")))
        assert len(person.asked) == asked, (step, path)
        run.journal.close()  # type: ignore[attr-defined]


def test_under_another_policy_it_is_asked_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    allowed(folder, "rule")
    person = Person([Decision("reject", "operator")])
    run = open_folder(folder, person, policy=STRICTER)
    execute(run, prepare(run, wants("mkdir", "/srv/models/x")))
    assert len(person.asked) == 1


def test_a_destructive_call_is_never_granted_beyond_itself(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = open_folder(folder, Person([Decision("approve", "operator", scope="rule")]))
    execute(run, prepare(run, wants("reboot")))
    run.journal.close()  # type: ignore[attr-defined]
    person = Person([Decision("reject", "operator")])
    run = open_folder(folder, person)
    execute(run, prepare(run, wants("reboot")))
    assert len(person.asked) == 1


def test_after_an_untrusted_text_it_does_not_hold_either(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    allowed(folder, "rule")
    person = Person([Decision("reject", "operator")])
    run = open_folder(folder, person)
    run.gate.taint()
    execute(run, prepare(run, wants("mkdir", "/srv/models/z")))
    assert len(person.asked) == 1
