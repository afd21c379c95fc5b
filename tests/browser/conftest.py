"""A real browser for the pages that the program writes: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from browsing import Open, Opened
from playwright.sync_api import Browser, BrowserContext, sync_playwright

QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--disable-dev-shm-usage"]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One chromium for a module. Not for the session: Playwright's event loop would be in the way of others' tests."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing, and CI must not skip the browser tests: apt-get install chromium")
        pytest.skip("chromium is missing: apt-get install --no-install-recommends chromium fonts-dejavu-core")
    root = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium's sandbox does not work for root
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=QUIET + root)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """`open_page(path, dark=…, width=…, fragment="e12", scripts=False)`: the file in a fresh context."""
    contexts: list[BrowserContext] = []

    def open_it(
        path: Path,
        *,
        dark: bool = False,
        width: int = 1200,
        height: int = 900,
        media: Literal["screen", "print"] = "screen",
        scripts: bool = True,
        fragment: str = "",
    ) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
        )
        contexts.append(context)
        context.set_default_timeout(120_000)  # a busy machine is no fault of the page
        opened = Opened(context.new_page())
        opened.page.emulate_media(media=media)
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on(
            "console", lambda said: opened.errors.append(said.text) if said.type in ("error", "warning") else None
        )
        opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
        opened.page.goto(path.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        return opened

    yield open_it
    for context in contexts:
        context.close()
