"""One way to say "did you mean", used everywhere."""

from __future__ import annotations

from pathlib import Path

from opsagent_tools.errors import meant, suggest

ROOT = Path(__file__).parents[2]


def test_a_near_word_is_named_and_else_what_is_known() -> None:
    assert suggest("targt", ["target", "source"]) == "did you mean `target`?"
    assert suggest("zzz", ["target", "source"]) == "known: source, target"
    assert suggest("zzz", ["target"], otherwise="opsagent lab list shows them") == "opsagent lab list shows them"
    assert (meant("flashinfr", ["flashinfer", "triton"]), meant("zzz", ["triton"])) == ("flashinfer", "")


def test_nobody_else_words_it() -> None:
    sources = [path for folder in ("agent", "tools", "lab") for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in sources if "get_close_matches" in path.read_text("utf-8")] == ["errors.py"]
