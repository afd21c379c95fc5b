"""Every relative link and every path in back quotes of our Markdown leads somewhere; anchors exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
OURS = ("README.md", "AGENTS.md", "docs", "runbooks", "transcripts/README.md", "tests", "lab", "agent", "tools")
FOLDERS = ("docs", "runbooks", "transcripts", "tests", "agent", "tools", "lab", "bench")


def pages() -> list[Path]:
    found = [ROOT / name for name in OURS]
    return [page for each in found for page in ([each] if each.is_file() else sorted(each.rglob("*.md")))]


def tokens(page: Path) -> list[Token]:
    made = MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))
    return [inner for token in made for inner in [token, *(token.children or [])]]


def anchors(page: Path) -> set[str]:
    """Ids of headings, as forges make them."""
    made = MarkdownIt("commonmark").parse(page.read_text("utf-8"))
    titles = [made[at + 1].content for at, token in enumerate(made) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def targets(page: Path) -> list[str]:
    found = []
    for token in tokens(page):
        for name in ("href", "src"):
            value = token.attrGet(name)
            if isinstance(value, str):
                found.append(value)
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in targets(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.relative_to(ROOT)}: {target}"
        assert there.is_relative_to(ROOT), target
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.relative_to(ROOT)}: {target}"


@pytest.mark.parametrize("page", [page for page in pages() if "tests" not in page.parts], ids=lambda p: p.name)
def test_paths_of_this_repository_in_back_quotes_exist(page: Path) -> None:
    for token in tokens(page):
        words = token.content.split() if token.type == "code_inline" else []
        for word in words[:1]:
            if word.partition("/")[0] in FOLDERS and "/" in word and not set(word) & set("*<>{}…$"):
                assert (ROOT / word).exists() or _ignored(word), f"{page.relative_to(ROOT)}: {word}"


def _ignored(word: str) -> bool:
    done = subprocess.run(["git", "check-ignore", "-q", word], cwd=ROOT, check=False)
    return done.returncode == 0


def test_every_page_of_docs_is_in_the_index() -> None:
    index = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in targets(ROOT / "docs" / "README.md")}
    pages_there = {page.resolve() for page in (ROOT / "docs").rglob("*.md")} - {(ROOT / "docs" / "README.md").resolve()}
    assert pages_there <= index, sorted(str(page.relative_to(ROOT)) for page in pages_there - index)
