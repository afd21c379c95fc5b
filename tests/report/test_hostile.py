"""Names and outputs from hosts are inert in every form of the report: Markdown, a terminal, HTML; a megabyte stays short."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report.hostile import ATTACK, DECEIVING, LINE, hostile

from opsagent.protocols import Event
from opsagent.report import html, markdown, terminal

EVENTS = [
    Event(1, "2026-12-01T00:00:00Z", "note", {"summary": ATTACK, ATTACK: [ATTACK], "host": ATTACK, "big": LINE}, "")
]
STYLED = re.compile(r"\x1b\[[0-9;]*m")


class Tags(HTMLParser):
    """Every tag with its attributes, and the text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tags_of(page: str) -> Tags:
    parser = Tags()
    parser.feed(page)
    return parser


def assert_inert(page: str) -> None:
    found = tags_of(page)
    names = {name for name, _attrs in found.tags}
    assert not names & {"script", "img", "b", "iframe", "object", "base", "form", "embed"}, names
    for name, attrs in found.tags:
        assert not [key for key in attrs if key.startswith("on")], (name, attrs)
        assert name == "link" or (attrs.get("href") or "#").startswith("#"), (name, attrs)
    assert [char for char in DECEIVING if char in page] == []


def test_html() -> None:
    page = html.render(hostile(ATTACK), EVENTS)
    assert_inert(page)
    assert "document.title='owned'" in "".join(tags_of(page).words), "shown as text, not dropped"


BEGINNINGS = ("", "# ", "- ", "+ ", "> ", "1. ", "1) ", "    ", "--- ", "--", "=== ", "| a |")


def blocks(text: str) -> list[str]:
    """The structure of Markdown: its blocks, without the words."""
    return [token.type for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)]


PLAIN = blocks(markdown.render(hostile("x")))


@pytest.mark.parametrize("start", BEGINNINGS)
def test_markdown(start: str) -> None:
    text = markdown.render(hostile(start + ATTACK))
    assert [char for char in DECEIVING if char in text] == []
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    inline = [inner for token in tokens for inner in (token.children or ())]
    assert [t.content for t in inline if t.type in ("html_inline", "link_open", "image")] == []
    assert blocks(text) == PLAIN, "no text begins or ends a block, a row or a cell"


def test_terminal() -> None:
    screen = Terminal()
    terminal.show(hostile(ATTACK), screen)
    drawn = STYLED.sub("", screen.getvalue())
    assert [char for char in DECEIVING if char in drawn] == []


@pytest.mark.parametrize("form", ["html", "markdown", "terminal"])
def test_a_megabyte_on_a_line_is_cut(form: str) -> None:
    report = hostile(LINE)
    screen = Terminal()
    if form == "html":
        text = html.render(report, EVENTS)
    elif form == "markdown":
        text = markdown.render(report)
    else:
        terminal.show(report, screen)
        text = screen.getvalue()
    assert len(text) < 400_000
    assert len(report.model_dump_json()) > 10_000_000, "the JSON keeps it whole"


@settings(max_examples=25)
@given(st.text(max_size=40))
def test_any_text(text: str) -> None:
    assert_inert(html.render(hostile(text), EVENTS))
    if text.strip():  # sections without content are left out
        assert blocks(markdown.render(hostile(text))) == PLAIN
