"""The tutorial's commands do what the tutorial says: exit codes, and the quoted output in shape."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.console import Step, missing, shape, steps

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that looks like the repository, so that what the tutorial writes does not lie in ours."""
    folder = tmp_path / "tutorial"
    folder.mkdir()
    for name in ("runbooks", "lab", "tests", "transcripts"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def test_the_tutorial(place: Path) -> None:
    """One test: each command goes on from what those before it left."""
    followed = steps(PAGE)
    assert len(followed) > 5
    for step in followed:
        _follow(step, place)


def _follow(step: Step, place: Path) -> None:
    env = {
        **os.environ,
        "XDG_STATE_HOME": str(place / "state"),
        "XDG_CONFIG_HOME": str(place / "config"),
        "COLUMNS": "200",
    }
    env.pop("OPSAGENT_LLM", None)
    assert step.argv[0] == "opsagent"
    done = subprocess.run(
        [sys.executable, "-c", "from opsagent.cli import main; main()", *step.argv[1:]],
        capture_output=True, text=True, env=env, cwd=place, stdin=subprocess.DEVNULL, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == step.code, f"docs/tutorial.md:{step.line}: {done.stderr[-2000:]}"
    if step.argv[1] == "plan":  # the same each time, so its numbers are quoted as they are
        assert [line for line in step.quoted if line not in done.stdout] == []
    gone = missing(step, done.stderr + done.stdout)
    assert not gone, (
        f"docs/tutorial.md:{step.line} quotes what was not printed: {gone}\n{done.stderr[-3000:]}{done.stdout[-3000:]}"
    )


def test_the_checker_is_not_blind() -> None:
    step = Step(1, ("opsagent",), 0, ("ready after 122 s: 126646 tokens", "9 probes passed"))
    assert missing(step, "  → ready after 99.5 s: 1 tokens, 4 requests\n→ 9 probes passed, first") == []
    assert missing(step, "9 probes passed\nready after 1 s: 2 tokens") == ["9 probes passed"]
    assert shape("go on with: opsagent resume 0b37") == shape("go on with: opsagent resume ffff")
