"""The diff that a person sees before a write, on this machine."""

from __future__ import annotations

from pathlib import Path

from opsagent.call import Call, Decision, Verdict
from opsagent.gate import Gate, Policy
from opsagent.gate.preview import diff_of
from opsagent_tools.hosts.local import LocalHost


def write(path: Path, content: str) -> Call:
    return Call(id="c1", tool="write_file", host="local", args={"path": str(path), "content": content})


def test_a_diff_of_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("one\ntwo\n")
    diff = diff_of(write(path, "one\nthree\n"), LocalHost()).splitlines()
    assert [line for line in diff if line[0] in "+-" and line[:3] not in ("+++", "---")] == ["-two", "+three"]


def test_a_new_file_is_all_new(tmp_path: Path) -> None:
    diff = diff_of(write(tmp_path / "b", "x\n"), LocalHost()).splitlines()
    assert "(new)" in diff[0]
    assert diff[-1] == "+x"


def test_other_calls_have_none() -> None:
    assert diff_of(Call(id="c1", tool="ssh_exec", host="local", args={"argv": ["ls"]}), LocalHost()) == ""


def test_the_approver_gets_it(tmp_path: Path) -> None:
    seen: list[str] = []

    class Person:
        def decide(self, call: Call, verdict: Verdict, *, rollback: str = "", diff: str = "") -> Decision:
            seen.append(diff)
            return Decision("reject", "operator", "no")

    path = tmp_path / "a"
    path.write_text("old\n")
    gate = Gate(Policy(roots=("/srv",)), "ask", Person(), preview=lambda call: diff_of(call, LocalHost()))
    call = write(path, "new\n")
    assert gate.admit(call, gate.judge(call)).answer == "reject"
    assert "-old" in seen[0]
