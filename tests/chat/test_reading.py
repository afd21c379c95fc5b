"""What is typed and what is drawn: blocks of an answer, wrapped lines, plain lines, the input history."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsagent.chat.reading import KEEP, PlainReader, kept_history
from opsagent.chat.view import Blocks, View, wrapped

LINES = st.lists(
    st.sampled_from(["", "text", "- item", "| a | b |", "```", "~~~", "   indented", "a b c"]), max_size=12
)


@given(LINES, st.lists(st.integers(min_value=0, max_value=60), max_size=6))
def test_blocks_lose_nothing_however_the_text_is_cut(lines: list[str], cuts: list[int]) -> None:
    text = "\n".join(lines)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    blocks = Blocks()
    found = [block for a, b in itertools.pairwise(places) for block in blocks.feed(text[a:b])]
    found += blocks.end()
    assert "\n".join(found).replace("\n", "") == text.replace("\n", "")
    whole = Blocks()
    assert found == whole.feed(text) + whole.end()


def test_a_fence_is_one_block() -> None:
    blocks = Blocks()
    assert blocks.feed("one\n\n```\na\n\nb\n```\n\ntwo") == ["one", "```\na\n\nb\n```"]
    assert blocks.end() == ["two"]


@given(st.text(alphabet=st.sampled_from("ab  -/"), max_size=200), st.integers(min_value=10, max_value=80))
def test_wrapped_lines_keep_their_words(line: str, width: int) -> None:
    assert "".join("".join(wrapped(line, width)).split()) == "".join(line.split())


def test_text_of_others_is_written_out() -> None:
    out = io.StringIO()
    view = View(out)
    view.line("a\x1b[31mred\u202e\nfaked line")
    view.answer("bold \x1b[2J **x** \u200b")
    assert "\x1b" not in out.getvalue()
    assert "\u202e" not in out.getvalue()
    assert out.getvalue().splitlines()[0].endswith("faked line")


def test_plain_lines_join_behind_a_backslash() -> None:
    out = io.StringIO()
    reader = PlainReader(io.StringIO("one\\\ntwo\nyes\n"), out, lambda text: text.replace("two", "2"))
    assert reader.read() == "one\ntwo"
    assert reader.ask("well? ") == "yes"
    assert "well? yes" in out.getvalue()
    assert "two" not in out.getvalue()
    with pytest.raises(EOFError):
        reader.read()


def test_the_history_is_private_clean_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    history = kept_history(path, lambda text: text.replace("secret", "[redacted]"))
    for number in range(2 * KEEP + 5):
        history.append_string(f"line {number} secret\nsecond")
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    assert "secret" not in path.read_text().replace("[redacted]", "")
    again = list(kept_history(path, str).load_history_strings())
    assert again[0] == f"line {2 * KEEP + 4} [redacted]\nsecond"
    assert len(again) == KEEP
