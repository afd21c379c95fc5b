"""docs/reference/policy.md: what happens to a call of each tier in each mode, the tools' tiers, and the known programs."""

from __future__ import annotations

from importlib.resources import files

from bench.reference.markdown import code, table

from opsagent.call import TIERS, Call, Verdict
from opsagent.gate.approvals import MODES, Mode, ruling
from opsagent.gate.commands.tables import read
from opsagent.gate.policy import DEFAULT_ROOTS, Policy
from opsagent_tools.registry import TOOLS

HEAD = """# Policy

What tiers mean and how a call is judged: [the gate](../gate.md). `opsagent policy explain` judges one call.

## What happens to a call

A declared call is one that the runbook's own fence says.
"""
SAID = {"runs": "runs", "asks": "asks a person", "waits": "waits (exit 4)", "denied": "refused (exit 6)"}


def page() -> str:
    modes = [["", *(code(mode) for mode in MODES)]]
    rows = [[f"{tier}{', declared' if declared else ''}", *(_said(tier, mode, declared) for mode in MODES)]
            for tier in TIERS for declared in ((False, True) if tier == "R1" else (False,))]  # fmt: skip
    tools = [[code(name), tool.tier] for name, tool in TOOLS.items()]
    roots = ", ".join(code(root) for root in DEFAULT_ROOTS)
    expiry = f"{Policy().approval_expiry_s / 3600:g} h"
    return "\n".join([
        HEAD, table(modes[0], rows),
        "\nAn approval of R1 or R2 can be given ahead, by the hash of the call (`--approve-file`); at the prompt of an "
        f"R3 call the host's name must be typed. An approval expires after {expiry} unless the configuration says less.\n",
        "## Least tier of the tools\n", table(["tool", "tier"], tools),
        f"\n## Where new files are R1\n\n{roots}. `roots` of the configuration replaces these; a runbook narrows them.\n",
        "## Programs that the gate knows\n",
        "Any other program is R3. The same program can be R0 or R3, by its options and what they name.\n", *_programs(),
    ])  # fmt: skip


def _said(tier: str, mode: Mode, declared: bool) -> str:
    call = Call(id="c1", tool="t", args={}, declared=declared)
    return SAID[ruling(call, Verdict(tier, ()), mode)]  # type: ignore[arg-type]


def _programs() -> list[str]:
    folder, parts = files("opsagent.gate") / "data", []
    for name in sorted(each.name for each in folder.iterdir() if each.name.endswith(".txt")):
        names = sorted({word for entry in read((folder / name).read_text(encoding="utf-8")) for word in entry.names})
        parts.append(f"**{name.removesuffix('.txt')}**: {' '.join(code(each) for each in names)}\n")
    return parts
