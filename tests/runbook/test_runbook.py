"""Runbooks: reading, linting, expressions and parameters."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from opsagent.runbook import expr, params
from opsagent.runbook.lint import lint
from opsagent.runbook.parse import parse
from opsagent_tools.errors import InputError
from opsagent_tools.tool import Args, Result, Tool


class LookArgs(Args):
    path: str
    depth: int = 1


class Disk(BaseModel):
    free_gib: float


class LookResult(Result):
    disk: Disk | None = None
    names: list[str] = []


def _never(*_args: Any, **_kwargs: Any) -> LookResult:
    raise AssertionError("lint runs nothing")


TOOLS = {"look": Tool("look", "Look.", LookArgs, LookResult, _never)}
CAUSES = frozenset({"port-in-use", "oom-weight-load"})
HEAD = """\
---
opsagent: 1
name: demo
params:
  dir: {type: path, default: /srv}
  wish: {type: flags, default: "--tp 2"}
hosts: {target: {count: 1}}
---
# Demo
"""


def book(body: str, head: str = HEAD) -> str:
    return head + textwrap.dedent(body)


def faults(body: str, head: str = HEAD) -> list[tuple[int, str, str]]:
    _runbook, found = lint(book(body, head), "demo.md", TOOLS, CAUSES)
    return [(fault.line, fault.what, fault.instead) for fault in found]


GOOD = """
    Why we do it.

    ## Look around {#look}

    Prose for people.

    ```call
    tool: look
    host: target
    args: {path: "${dir}/x"}
    as: seen
    ```
    ```check
    - seen.disk.free_gib > 1.5      # room for the weights
    - '"a" in seen.names'
    ```
    ```remedy
    port-in-use:
      set: {--port: 30001}
      then: look
    ```
    ```rollback
    tool: look
    host: target
    args: {path: /srv}
    ```
"""


def test_a_good_runbook_compiles_with_lines_prose_and_reasons() -> None:
    runbook, found = lint(book(GOOD), "demo.md", TOOLS, CAUSES)
    assert found == []
    assert runbook is not None
    (step,) = runbook.steps
    assert (step.id, step.title, step.prose) == ("look", "Look around", "Prose for people.")
    assert runbook.intro == "Why we do it."
    assert [(c.expr, c.why) for c in step.checks] == [
        ("seen.disk.free_gib > 1.5", "room for the weights"),
        ('"a" in seen.names', ""),
    ]
    assert book(GOOD).splitlines()[step.checks[0].line - 1].strip().startswith("- seen.disk")
    assert step.remedies[0].spec.set == {"--port": 30001}
    assert runbook.flags_param == "wish"
    assert len(step.rollbacks) == 1


@pytest.mark.parametrize(
    ("body", "what", "instead"),
    [
        ("## No id\n\ntext", "has no id", "{#no-id}"),
        ("## A {#a}\n\n## B {#a}\n", "second step with the id 'a'", "unique"),
        ("## A {#a}\n```calls\ntool: look\n```\n", "unknown fence 'calls'", "`call`"),
        ("## A {#a}\n```call\ntool: lok\nhost: target\n```\n", "unknown tool 'lok'", "`look`"),
        ("## A {#a}\n```call\ntool: look\nhost: targt\nargs: {path: /x}\n```\n", "role 'targt'", "`target`"),
        ("## A {#a}\n```call\ntool: look\nhst: target\n```\n", "unknown key 'hst'", "`host`"),
        ("## A {#a}\n```call\ntool: look\nhost: target\nargs: {pth: /x}\n```\n", "no argument 'pth'", "`path`"),
        ("## A {#a}\n```call\ntool: look\nhost: target\n```\n", "needs the argument 'path'", ""),
        ("## A {#a}\n```call\ntool: look\nhost: target\nargs: {path: /x, depth: deep}\n```\n", "depth", ""),
        ("## A {#a}\n```call\ntool: look\nhost: target\nargs: {path: '${dri}'}\n```\n", "unknown name 'dri'", "`dir`"),
        ("## A {#a}\n```check\n- dir ==\n```\n", "not a CEL expression", ""),
        ("## A {#a}\n```check\ndir == 1\n```\n", "list of expressions", "- EXPRESSION"),
        ("## A {#a}\n```check\n- seen.disk.fre > 1.0\n```\n", "unknown name 'seen'", ""),
        ("## A {#a}\n```remedy\nport-in-us: {then: a}\n```\n", "unknown cause 'port-in-us'", "`port-in-use`"),
        ("## A {#a}\n```remedy\nport-in-use: {then: b}\n```\n", "no step 'b'", ""),
        ("## A {#a}\n```remedy\nport-in-use: {}\n```\n", "does nothing", ""),
        ("## A {#a}\n```call\ntool: look: x\n```\n", "is not YAML", ""),
        ("```call\ntool: look\n```\n## A {#a}\n", "before the first step", ""),
        ("no step at all", "no step", "## Title {#id}"),
    ],
)
def test_each_fault_is_named_with_its_place_and_what_to_write(body: str, what: str, instead: str) -> None:
    found = faults(body)
    assert any(what in text and instead in hint for _line, text, hint in found), found
    assert all(line >= 1 for line, _text, _hint in found)


def test_field_names_are_followed_through_the_result_model() -> None:
    body = GOOD.replace("seen.disk.free_gib", "seen.disk.free_gb")
    assert any("has no 'free_gb'" in what and "free_gib" in hint for _line, what, hint in faults(body))


def test_a_name_used_before_it_is_bound_is_said_to_come_later() -> None:
    body = """
    ## A {#a}
    ```check
    - seen.names.size() > 0
    ```
    ## B {#b}
    ```call
    tool: look
    host: target
    args: {path: /x}
    as: seen
    ```
    """
    assert any("bound only later" in hint for _line, _what, hint in faults(body))


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (HEAD.replace("opsagent: 1", "opsagent: 2"), "opsagent"),
        (HEAD.replace("name: demo", "nam: demo"), "unknown key 'nam'"),
        (HEAD.replace("default: /srv", "defalt: /srv"), "defalt"),
        (HEAD.replace("hosts:", "allow: {roots: [srv], ports: [99999]}\nhosts:"), "allow.roots"),
        (HEAD.replace("hosts:", "budget: {wall: soon}\nhosts:"), "budget.wall"),
        ("", "no front matter"),
    ],
)
def test_front_matter_faults(head: str, what: str) -> None:
    assert any(what in text for _line, text, _hint in faults("## A {#a}\n", head))


@given(st.text(max_size=400))
def test_any_text_gives_faults_and_never_a_traceback(text: str) -> None:
    runbook, found = parse(text)
    assert runbook is not None or found


# --- expressions ---------------------------------------------------------------------------------------------------

BOUND: dict[str, Any] = {
    "plan": {"verdict": "fits", "limits": {"n": 5}, "flags": ["--tp", "2"]},
    "none": None,
    "gpus": [{"driver": "nvidia"}, {"driver": "vfio-pci"}],
    "dir": "/srv",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('plan.verdict == "fits" && plan.limits.n > 4', True),
        ("double(plan.limits.n) >= 0.97 * double(5)", True),
        ('gpus.exists(g, g.driver == "vfio-pci")', True),
        ('gpus.all(g, g.driver == "nvidia")', False),
        ("none == null", True),
        ("has(plan.nothing)", False),
        ("plan.flags", ["--tp", "2"]),
        ('dir + "/x"', "/srv/x"),
        ('plan.flags + ["--x"]', ["--tp", "2", "--x"]),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    assert expr.evaluate(text, BOUND) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("later.x == 1", "later is not bound yet"),
        ("none.x == 1", "none is null"),
        ("plan.limits.m == 1", "plan.limits has no 'm'"),
        ("plan.limits.n >", "not a CEL expression"),
    ],
)
def test_a_missing_value_is_named(text: str, reason: str) -> None:
    with pytest.raises(expr.ExprError, match=reason):
        expr.evaluate(text, BOUND)


def test_references_keep_types_alone_and_become_text_inside_text() -> None:
    value = {"a": "${plan.limits}", "b": ["${plan.limits.n}", "p=${plan.flags} in ${dir}"], "c": 1}
    assert expr.resolve(value, BOUND) == {"a": {"n": 5}, "b": [5, "p=--tp 2 in /srv"], "c": 1}


OPEN = HEAD.replace(
    "hosts:", 'open:\n  - {when: undone != null, say: "taken back: ${undone.names}"}\n  - say: "look at ${dir}"\nhosts:'
)
UNDO = """
    ## A {#a}

    ```rollback
    tool: look
    host: target
    args: {path: "${seen.names[0]}"}
    ```
    ```rollback
    tool: look
    host: target
    args: {path: /x}
    as: %s
    ```
"""


def test_open_items_and_later_rollbacks_see_what_rollbacks_bind() -> None:
    found = faults(UNDO % "undone", OPEN)  # the last fence is made first: `seen` is what it would have to bind
    assert [what for _line, what, _instead in found] == ["seen.names[0]: unknown name 'seen'"]
    assert any("unknown name 'undone'" in what for _line, what, _instead in faults(UNDO % "seen", OPEN))
    runbook, _ = parse(book(UNDO % "undone", OPEN))
    assert runbook is not None
    assert [item.say for item in runbook.front.open] == ["taken back: ${undone.names}", "look at ${dir}"]


# --- parameters ----------------------------------------------------------------------------------------------------


def test_parameters_take_their_types() -> None:
    runbook, _ = parse(book("## A {#a}\n"))
    assert runbook is not None
    assert params.bind(runbook, {"wish": "--tp 4 --x='a b'"}) == {"dir": "/srv", "wish": ["--tp", "4", "--x=a b"]}
    with pytest.raises(InputError, match="no parameter 'wsh'"):
        params.bind(runbook, {"wsh": "1"})


@pytest.mark.parametrize(
    ("flags", "flag", "value", "expected"),
    [
        (["--tp", "2"], "--mem", "0.8", ["--tp", "2", "--mem", "0.8"]),
        (["--mem", "0.7", "--tp", "2"], "--mem", 0.8, ["--mem", "0.8", "--tp", "2"]),
        (["--mem=0.7", "--tp", "2"], "--mem", "0.8", ["--mem", "0.8", "--tp", "2"]),
        (["--a", "--tp", "2"], "--a", None, ["--tp", "2"]),
        (["--tp", "2"], "--a", True, ["--tp", "2", "--a"]),
        (["--cuda-graph-bs", "1", "2", "--tp", "2"], "--cuda-graph-bs", "4", ["--cuda-graph-bs", "4", "--tp", "2"]),
    ],
)
def test_set_flag_adds_replaces_and_removes(flags: list[str], flag: str, value: Any, expected: list[str]) -> None:
    assert params.set_flag(flags, flag, value) == expected


@given(st.lists(st.sampled_from(["--a", "--b", "1", "x y"]), max_size=6), st.sampled_from(["1", True, None]))
def test_set_flag_twice_is_once(flags: list[str], value: Any) -> None:
    once = params.set_flag(flags, "--a", value)
    assert params.set_flag(once, "--a", value) == once


@pytest.mark.parametrize(("text", "seconds"), [("40m", 2400.0), ("2h", 7200.0), ("90", 90.0), ("1.5h", 5400.0)])
def test_durations(text: str, seconds: float) -> None:
    assert params.duration(text) == seconds
