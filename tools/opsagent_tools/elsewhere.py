"""Judging flags where the host itself cannot: by an SGLang that is installed on the machine where opsagent runs.

Such an environment needs no GPU: PyTorch for the CPU, what SGLang imports, and SGLang without its dependencies (how to
make one: docs/hosts.md). It is found by its version, never named by a model or a runbook.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsagent_tools import probes
from opsagent_tools.errors import ToolFailed
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.planner import NEWEST

PATIENCE_S = 600.0


def find(version: str, environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """Interpreter and version of an installed SGLang; of that version, or of any when `version` is ''.

    `OPSAGENT_SGLANG_0_5_11=/path/to/python` names one, else $XDG_DATA_HOME/opsagent/sglang-0.5.11/bin/python is looked for.
    """
    found = {}
    for name, value in environ.items():
        known = re.fullmatch(r"OPSAGENT_SGLANG_(\d+)_(\d+)_(\d+\w*)", name)
        if known and value:
            found[".".join(known.groups())] = value
    data = Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "opsagent"
    for path in sorted(data.glob("sglang-*/bin/python")):
        found.setdefault(path.parent.parent.name.removeprefix("sglang-"), str(path))
    if not version:
        version = NEWEST if NEWEST in found else max(found, default="", key=_order)
    return (found[version], version) if version in found else None


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def pretended(cards: GpuFacts) -> dict[str, Any]:
    """The cards as the probe takes them. Raises ToolFailed for a card whose generation nobody knows."""
    if cards.sm is None:
        raise ToolFailed(f"of which generation is {cards.name!r}?", hint="name the card as nvidia-smi does")
    return {
        "name": f"NVIDIA {cards.name}",
        "mib": round(cards.total_mib),
        "capability": list(cards.sm),
        "count": cards.count,
    }


def judge(
    python: str, config: Mapping[str, Any], path: str, flags: list[str], env: Mapping[str, str], cards: GpuFacts
) -> dict[str, Any]:
    """The answer of the probe `preflight`, given here. `config` stands in for the model directory `path` of the host."""
    with tempfile.TemporaryDirectory(prefix="opsagent-model-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
        words = [folder if word == path else word for word in flags]
        given = json.dumps({"flags": words, "env": {k: v for k, v in env.items() if k.startswith("SGLANG_")}})
        wanted = {"disk": [], "pretend": pretended(cards)}
        answer = probes.ask(LocalHost(), "preflight", wanted, python=python, stdin=given, timeout_s=PATIENCE_S)
        text = json.dumps(answer).replace(json.dumps(folder)[1:-1], json.dumps(path)[1:-1])
    if answer["error"]:
        raise ToolFailed(
            f"{python} cannot judge flags: {answer['error']}", where="this machine", hint="see docs/hosts.md"
        )
    found: dict[str, Any] = json.loads(text)
    return found
