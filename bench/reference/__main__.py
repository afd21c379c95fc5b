"""Writes docs/reference/, docs/why-one-request.* and the table of docs/planner.md: `python -m bench.reference`.

With `--check` it only says which page is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from bench import planner_table
from bench.reference import causes, codes, configuration, policy, tools, verbs, why

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
NOTE = "<!-- Made by `just reference` from the code: change the code, not this page. -->\n\n"
PAGES: dict[str, Callable[[], str]] = {
    "verbs.md": verbs.page,
    "tools.md": tools.page,
    "configuration.md": configuration.page,
    "policy.md": policy.page,
    "causes.md": causes.page,
    "exit-codes.md": codes.exit_codes,
    "events.md": codes.events,
    "../why-one-request.md": why.page,
    "../why-one-request.svg": why.picture,
    "../planner.md": lambda: planner_table.document(planner_table.DOCUMENT.read_text(encoding="utf-8")),
}
WRITTEN_BY_HAND = ("../planner.md",)
"""Pages of which only a table is made."""


def stale() -> list[str]:
    """Names of pages that are not what the code says."""
    return [name for name in PAGES if _text(FOLDER / name) != made(name)]


def made(name: str) -> str:
    """A page as it should be."""
    noted = name.endswith(".md") and name not in WRITTEN_BY_HAND
    return (NOTE if noted else "") + PAGES[name]()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main() -> int:
    names = stale()
    if "--check" in sys.argv[1:]:
        print(f"stale: {', '.join(names)}; run `just reference`" if names else "docs/reference is up to date")
        return 1 if names else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        (FOLDER / name).write_text(made(name), encoding="utf-8")
    print(f"written: {', '.join(names) or 'nothing, all was up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
