"""The classification suite: every row is a command with the tier it must (not) have, and why. Rows are data in suite/."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from opsagent.call import TIERS, Call
from opsagent.gate import Facts, Policy, classify
from opsagent.gate.explain import arguments

SUITE = Path(__file__).parent / "suite"
ROW = re.compile(r"(R[0-3]|X) (?:(\w+): )?(.*?) ## (.+)")


@dataclass(frozen=True)
class Row:
    place: str
    section: str
    tier: str
    tool: str
    words: tuple[str, ...]
    reason: str

    def verdict_tier(self) -> str:
        call = Call(id="c1", tool=self.tool, host="gpu01", args=arguments(self.tool, list(self.words)))
        return classify(call, Facts(), Policy()).tier


def rows(name: str) -> list[Row]:
    found, section = [], ""
    for number, line in enumerate((SUITE / name).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            match = ROW.fullmatch(line)
            assert match, f"{name}:{number}: {line}"
            words = tuple(
                word.encode().decode("unicode_escape") if "\\u" in word else word for word in shlex.split(match[3])
            )
            found.append(Row(f"{name}:{number}", section, match[1], match[2] or "ssh_exec", words, match[4]))
    return found


HARMLESS = rows("harmless.txt")
DANGEROUS = rows("dangerous.txt")


@pytest.mark.parametrize("row", DANGEROUS, ids=lambda row: row.place)
def test_no_dangerous_command_is_below_its_tier(row: Row) -> None:
    assert TIERS.index(row.verdict_tier()) >= TIERS.index(row.tier), (row.words, row.reason)


@pytest.mark.parametrize("row", HARMLESS, ids=lambda row: row.place)
def test_no_harmless_command_is_raised(row: Row) -> None:
    assert row.verdict_tier() == row.tier, (row.words, row.reason)


def test_the_suite_is_broad_enough() -> None:
    assert len(HARMLESS) + len(DANGEROUS) >= 300
    sections = Counter(row.section.split(" ")[1] for row in DANGEROUS if row.section.startswith("bypass "))
    assert set(sections) == {str(n) for n in range(1, 17)}
    assert min(sections.values()) >= 10, sections
