"""A page in a real browser: what was asked of the network, what the console said, what a reader sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page


@dataclass
class Opened:
    """A page that was opened from a file, and what happened while it was."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Errors and warnings of the console (the policy's refusals too), and exceptions of scripts."""

    def assert_quiet(self) -> None:
        """Exactly one request (the file itself) and nothing on the console."""
        assert len(self.requests) == 1, self.requests
        assert self.errors == []

    def text(self) -> str:
        """What a reader sees."""
        return self.page.locator("body").inner_text()

    def too_wide(self) -> int:
        """Pixels by which the content is wider than the screen: 0 unless one has to scroll sideways."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def accessibility(self) -> list[str]:
        """What axe-core finds wrong: `rule: html of the element`."""
        found = Axe().run(self.page, options={"resultTypes": ["violations"]}).response["violations"]
        return [f"{rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]


class Open(Protocol):
    """The fixture `open_page` (tests/browser/conftest.py): a file in a fresh context of chromium."""

    def __call__(
        self,
        path: Path,
        *,
        dark: bool = False,
        width: int = 1200,
        height: int = 900,
        media: Literal["screen", "print"] = "screen",
        scripts: bool = True,
        fragment: str = "",
    ) -> Opened: ...
