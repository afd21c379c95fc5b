"""Writes docs/reference/ from the code: `python -m bench.reference`; with `--check` only says which page is stale."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from bench.reference import causes, codes, configuration, policy, tools, verbs

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
}


def stale() -> list[str]:
    """Names of pages that are not what the code says."""
    return [name for name, page in PAGES.items() if _text(FOLDER / name) != NOTE + page()]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main() -> int:
    names = stale()
    if "--check" in sys.argv[1:]:
        print(f"stale: {', '.join(names)}; run `just reference`" if names else "docs/reference is up to date")
        return 1 if names else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        (FOLDER / name).write_text(NOTE + PAGES[name](), encoding="utf-8")
    print(f"written: {', '.join(names) or 'nothing, all was up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
