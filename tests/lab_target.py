"""One simulated machine for tests of tools: two RTX A6000, uv, an environment, a model; anything can be changed by TOML."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import opsagent_lab
from opsagent_lab.lab import Lab
from opsagent_tools.clock import FastClock
from opsagent_tools.host import Host
from opsagent_tools.hosts.inventory import HostEntry, Inventory, open_host
from opsagent_tools.tool import Context

SPEED = 600.0
BASE = """
title = "a machine for tests"
runbook = "launch"
goal = "-"
speed = 600.0
[roles]
target = "gpu1"
[hosts.gpu1]
addresses = ["10.0.1.1"]
os = "ubuntu-24.04"
driver = "580.126.09"
cards = [{ model = "A6000", count = 2 }]
"""
USUAL = """
uv = "0.13.9"
models."/srv/models/m" = { repo = "Qwen/Qwen3.6-27B" }
venvs."/opt/sglang" = { sglang = "0.5.11" }
"""


@dataclass
class Target:
    lab: Lab
    host: Host

    def ctx(self, call: str = "c1", **fields: Any) -> Context:
        return Context(run_id="t", call_id=call, clock=FastClock(SPEED), **fields)


@contextmanager
def target(folder: Path, more: str = USUAL) -> Iterator[Target]:
    path = folder / "target.toml"
    path.write_text(BASE + more)
    with opsagent_lab.open(str(path)) as lab:
        inventory = Inventory({name: HostEntry(**table) for name, table in lab.hosts().items()})
        host = open_host("gpu1", inventory)
        try:
            yield Target(lab, host)
        finally:
            host.close()
        assert lab.world.bugs == []
