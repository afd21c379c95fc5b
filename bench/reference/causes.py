"""docs/reference/causes.md: every cause in our words, and how well the diagnosis names the examples of each family."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = """# Causes of failed and sick servers

The data is in `tools/opsagent_tools/sglang/diagnosis/signatures/`, one file per family.
`opsagent diagnose LOG` names one of these, or `none` for a healthy server and for a log that does not tell.

The cause is the earliest event that explains the rest. "Received sigquit", "Killed" after an error, closed sockets of
other ranks and the printed lists of solutions are consequences or boilerplate. For memory the moment decides: weights,
static pools, graph capture, serving. Lines that look like errors and are none are listed as noise, each with its reason.

## How well it does on the examples

The examples are recorded logs of SGLang 0.5.11 and short logs in the words of SGLang's sources (0.5.9 to 0.5.23), of
libraries and of public threads (`tests/data/logs`, `tests/data/variants`). They were seen while the signatures were written.

| family | examples | verdict right | cause right |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    sys.path.insert(0, str(ROOT / "tests"))
    from diagnosis.examples import examples

    from opsagent_tools.sglang.diagnosis import CAUSES, diagnose

    rows: dict[str, list[tuple[bool, bool]]] = {}
    for example in examples():
        family = CAUSES[example.cause].family if example.cause in CAUSES else f"{example.verdict}, no cause"
        found = diagnose(example.data)
        rows.setdefault(family, []).append((found.verdict == example.verdict, found.cause == example.cause))
    out = [HEAD.rstrip("\n")]
    for family, scores in sorted(rows.items()):
        out.append(f"| {family} | {len(scores)} | {sum(v for v, _c in scores)} | {sum(c for _v, c in scores)} |")
    for family in sorted({c.family for c in CAUSES.values()}):
        out += [
            "",
            f"## {family}",
            "",
            "| cause | what it is | what proves it | not to be confused with | what helps |",
        ]
        out.append("|---|---|---|---|---|")
        for cause in CAUSES.values():
            if cause.family == family:
                cells = (f"`{cause.slug}`", cause.means, cause.proof, cause.not_to_be_confused or "–", cause.fix)
                out.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(out) + "\n"
