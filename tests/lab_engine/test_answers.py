"""What the simulated model says to the questions that servers are tested with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsagent_lab.engine import answers

ASKED = [
    ("What is 17*23? Answer with the number only.", "391"),
    ("What is 17 × 23?", "391"),
    ("Compute (12 + 8) * 3 - 5.", "55"),
    ("2+2=", "4"),
    ("Calculate 7 / 2", "3.5"),
    ("What is the capital of France? Answer with one word.", "Paris"),
    ("What is the capital of Japan?", "The capital is Tokyo."),
    ("Repeat exactly: 3f9ac2d81b7e", "3f9ac2d81b7e"),
    ("Copy this string and nothing else: 'a1-B2-c3'", "a1-B2-c3"),
    ("Reply with only the word pong", "pong"),
    ('Reverse the word "stream".', "maerts"),
    ('Return this JSON unchanged: {"a": 1}', '{"a": 1}'),
    ("The magic number is 48213. What is the magic number?", "48213"),
    ("Count from 1 to 5.", "1, 2, 3, 4, 5"),
]


@pytest.mark.parametrize(("asked", "said"), ASKED)
def test_known_questions(asked: str, said: str) -> None:
    assert answers.answer([{"role": "user", "content": asked}]) == said


@pytest.mark.parametrize("asked", ["Write 3-4 sentences about rivers.", "Tell me about 2026-11-30 and the sea."])
def test_an_essay_is_long_and_does_not_repeat_itself(asked: str) -> None:
    text = answers.answer([{"role": "user", "content": asked}])
    words = text.split()
    assert len(words) > 150
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    assert max(map(grams.count, grams)) / len(grams) < 0.06


@pytest.mark.parametrize("kind", ["repeat", "nan", "wrong"])
def test_garbage_is_never_right(kind: str) -> None:
    for _asked, said in ASKED:
        assert said not in answers.broken(said, kind) or said in ("4", "3.5")


@given(st.text(max_size=300))
def test_pieces_join_to_the_text_and_tokens_are_counted(text: str) -> None:
    assert "".join(answers.pieces(text)).strip() == text.strip() or "\x00" in text or not text.isprintable()
    assert answers.count_tokens(text) >= 0


@given(st.text(max_size=400))
def test_any_question_gets_an_answer(text: str) -> None:
    assert answers.answer([{"role": "user", "content": text}])
