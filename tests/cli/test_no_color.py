"""At a real terminal: colours without NO_COLOR somewhere, none with it in any verb (bold and dim are no colours)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from terminal import OPSAGENT, Session

from opsagent.cli import VERBS

ROOT = Path(__file__).parents[2]
COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
STORY = "transcripts/h200-qwen36-dummy"
QUIET: dict[str, list[str]] = {
    "run": ["runbooks/launch.md", "--host", "target=nowhere-at-all"],  # the live view: tests/live
    "plan": ["--model", "lab/opsagent_lab/engine/data/models/qwen3-8b.json", "--gpu", "RTX 4090:24564"],
    "diagnose": ["tests/data/logs/f-port-busy.log"],
    "runs": [], "show": [STORY], "diff": [STORY, STORY], "verify": [STORY],
    "approve": [STORY, "--show"], "policy": ["explain", "ssh_exec", "gpu1", "--", "ls"], "lint": ["runbooks/launch.md"],
    "hosts": ["list"], "doctor": [], "lab": ["list"], "completion": ["bash"],
}  # fmt: skip
"""How each verb is started here; those that are not named print their help."""


def at_a_terminal(words: list[str], home: Path, **env: str) -> bytes:
    places = {"XDG_STATE_HOME": str(home), "XDG_CONFIG_HOME": str(home), "OPSAGENT_LLM": ""}
    with Session([*OPSAGENT, *words], {**places, **env}, cwd=ROOT) as session:
        session.wait(120)
        return session.raw


@pytest.mark.parametrize("verb", list(VERBS))
def test_no_verb_draws_in_colour(verb: str, tmp_path: Path) -> None:
    written = at_a_terminal([verb, *QUIET.get(verb, ["--help"])], tmp_path, NO_COLOR="1")
    assert written.strip()
    assert not COLOUR.search(written), COLOUR.findall(written)[:3]


def test_the_test_can_see_colours(tmp_path: Path) -> None:
    assert COLOUR.search(at_a_terminal(["show", STORY], tmp_path))
