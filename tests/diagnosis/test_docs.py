"""docs/causes.md is what the data says."""

from __future__ import annotations

from pathlib import Path

from opsagent_tools.sglang.diagnosis import CAUSES

PAGE = Path(__file__).parents[2] / "docs" / "causes.md"


def test_every_cause_is_on_the_page_in_the_words_of_the_data() -> None:
    text = PAGE.read_text("utf-8")
    for slug, cause in CAUSES.items():
        assert f"`{slug}`" in text
        assert cause.means.replace("|", "\\|") in text
