"""Every command line of the documentation is one that the program accepts; the runbook of the how-to has no faults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.lines import accepts, command_lines
from markdown_it import MarkdownIt

from opsagent.checked import faults_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
SUB_VERBS = r"`opsagent ([a-z]+)"


def blocks(page: Path) -> str:
    """The text of all code blocks."""
    made = MarkdownIt("commonmark").parse(page.read_text("utf-8"))
    return "\n".join(token.content for token in made if token.type in ("fence", "code_block"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_parse(page: Path) -> None:
    for words in command_lines(blocks(page)):
        accepts(words)


def test_there_are_command_lines() -> None:
    assert sum(len(command_lines(blocks(page))) for page in PAGES) > 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_in_prose_exist(page: Path) -> None:
    from opsagent.cli import VERBS

    named = set(re.findall(SUB_VERBS, page.read_text("utf-8")))
    assert named <= set(VERBS)


def test_every_verb_is_in_the_readme_or_the_tutorial() -> None:
    from opsagent.cli import VERBS

    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert [verb for verb in VERBS if not re.search(rf"\b{verb}\b", text)] == []


def test_the_runbook_of_the_how_to_has_no_faults() -> None:
    page = (ROOT / "docs" / "how-to" / "own-runbook.md").read_text("utf-8")
    text = page.split("````markdown\n")[1].split("\n````")[0] + "\n"
    runbook, faults = faults_of(text, "look.md")
    assert faults == []
    assert runbook is not None
    assert [step.id for step in runbook.steps] == ["look", "ask"]
