"""What a person sees before deciding: nothing of others' text is obeyed, and nothing that matters is left out."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from opsagent.call import Call, Decision, Reason, Verdict
from opsagent.gate.display import has_hidden, visible, word
from opsagent.gate.prompt import TerminalApprover, render


def asked(
    *lines: str, tier: str = "R2", argv: tuple[str, ...] = ("systemctl", "stop", "sglang")
) -> tuple[Decision, str]:
    call = Call(id="c7", tool="ssh_exec", host="kpro5/ct129", args={"argv": list(argv)}, step="switch")
    verdict = Verdict(tier, (Reason("systemctl.stop", "stops a unit"),), effects=("stop of the unit sglang",))  # type: ignore[arg-type]
    shown: list[str] = []
    answers = list(lines)

    def read(_question: str) -> str:
        if not answers:
            raise EOFError
        return answers.pop(0)

    approver = TerminalApprover(labels={"kpro5/ct129": "production"}, say=shown.append, read=read)
    return approver.decide(call, verdict, rollback="start it again"), "\n".join(shown)


def test_the_prompt_says_where_what_why_and_how_to_undo() -> None:
    _, shown = asked("")
    for part in (
        "R2",
        "kpro5/ct129",
        "production",
        "systemctl.stop",
        "stop of the unit sglang",
        "start it again",
        "step switch",
    ):
        assert part in shown
    assert [line.strip() for line in shown.splitlines()].count("sglang") == 1  # one word a line


def test_the_default_is_no() -> None:
    assert asked("", "")[0].answer == "reject"
    assert asked()[0].answer == "reject"
    assert asked("n", "use the typed tool")[0] == Decision("reject", "operator", "use the typed tool")


def test_answers() -> None:
    assert asked("y")[0] == Decision("approve", "operator")
    assert asked("s")[0].scope == "step"
    assert asked("r")[0].scope == "rule"
    assert asked("p", "enough")[0] == Decision("stop", "operator", "enough")
    assert asked("c", '{"argv": ["uptime"]}')[0] == Decision("change", "operator", args={"argv": ["uptime"]})
    assert asked("c", "uptime")[0].answer == "reject"


def test_r3_needs_the_name_of_the_host() -> None:
    assert asked("y", "", tier="R3")[0].answer == "reject"
    assert asked("kpro5", "", tier="R3")[0].answer == "reject"
    assert asked("s", "", tier="R3")[0].answer == "reject"
    assert asked("kpro5/ct129", tier="R3")[0] == Decision("approve", "operator")


def test_hidden_characters_are_written_out_and_announced() -> None:
    _, shown = asked("", argv=("ls", "\x1b[2J\u202etxt\u200b\u2028\r"))
    assert "WARNING" in shown
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") for c in shown.replace("\n", ""))
    assert "\\x1b[2J\\u202etxt\\u200b\\u2028\\r" in shown


def test_contents_of_files_are_shown_line_by_line() -> None:
    call = Call(id="c1", tool="write_file", host="h", args={"path": "/etc/motd", "content": "a\n\x1b[31mb"})
    shown = render(call, Verdict("R2", ()), diff="-old\n+new\x07")
    assert "\\x1b[31mb" in shown
    assert "+new\\x07" in shown


@given(st.text())
def test_visible_text_has_no_character_that_acts(text: str) -> None:
    shown = visible(text)
    assert not any(unicodedata.category(c)[0] == "C" or unicodedata.category(c) in ("Zl", "Zp") for c in shown)
    assert "\n" not in shown
    assert has_hidden(text) or visible(text.replace("\n", "").replace("\t", "")) == text.replace("\n", "").replace(
        "\t", ""
    )


def test_words() -> None:
    assert word("plain") == "plain"
    assert word("") == "''"
    assert word("a b") == "'a b'"
