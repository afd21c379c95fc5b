"""docs/reference/ is what the code says today. `just reference` writes it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

from bench.reference.__main__ import FOLDER, PAGES, made  # noqa: E402


@pytest.mark.parametrize("name", list(PAGES))
def test_no_page_is_stale(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == made(name), "run `just reference`"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {name for name in PAGES if "/" not in name}
