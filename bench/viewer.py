"""How a transcript of 20,000 events compares with one of 400: to write its page, to open it in a browser, to search it.

Fifty times the events: a ratio far above 50 would say that something grows faster than the run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.journal import write

from opsagent.journal.intact import open_intact
from opsagent.viewer.html import html
from opsagent.viewer.load import view_of

SMALL, LARGE = 100, 5_000
"""Calls, four events each."""
SEARCH = """word => { const began = performance.now(); document.getElementById('q').value = word;
document.getElementById('find').requestSubmit(); document.body.offsetHeight; return performance.now() - began; }"""


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def page(folder: Path) -> Path:
    """Write the page of a run folder."""
    target = folder / "page.html"
    opened, damage = open_intact(folder)
    target.write_text(html(view_of(opened, damage), opened.log.head), encoding="utf-8")
    return target


def browse(path: Path) -> dict[str, float]:
    """Seconds until something is seen, until it is loaded, and for the first and the second search."""
    from playwright.sync_api import sync_playwright

    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu", *root])
        tab = chromium.new_page()
        loaded = seconds(lambda: tab.goto(path.as_uri()))
        tab.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        first, second = (tab.evaluate(SEARCH, word) for word in ("tail_log c42", "running-req"))
        chromium.close()
    return {"first paint": paint / 1e3, "loaded": loaded, "first search": first / 1e3, "next search": second / 1e3}


def run() -> list[tuple[str, float, float]]:
    """(what, small, large): megabytes of the page, and seconds."""
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name) / "small", Path(name) / "large"
        write(small, SMALL)
        write(large, LARGE)
        made = [seconds(partial(page, folder)) for folder in (small, large)]
        sizes = [(folder / "page.html").stat().st_size / 1e6 for folder in (small, large)]
        rows = [("page written", made[0], made[1]), ("megabytes", sizes[0], sizes[1])]
        if shutil.which("chromium") is None:
            print("chromium is missing: nothing was opened")
            return rows
        quick, slow = browse(small / "page.html"), browse(large / "page.html")
        return rows + [(what, quick[what], slow[what]) for what in quick]


if __name__ == "__main__":
    print(f"{'':<18}{4 * SMALL:>9} events{4 * LARGE:>9} events     ratio")
    for what, small, large in run():
        print(f"{what:<18}{small:>16.3f}{large:>16.3f}{large / max(small, 1e-9):>10.1f}")
