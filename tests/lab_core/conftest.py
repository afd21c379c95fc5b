"""A small lab: one machine with a container and another machine, nothing running, opened in a few milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_core_small import SMALL

import opsagent_lab
from opsagent_lab.lab import Lab
from opsagent_tools.host import Host
from opsagent_tools.hosts.inventory import HostEntry, Inventory, open_host


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def lab(small: Path) -> Iterator[Lab]:
    with opsagent_lab.open(str(small)) as opened:
        yield opened
        assert opened.world.bugs == []


def host_of(lab: Lab, name: str) -> Host:
    """A host of the lab through our own transport."""
    return open_host(name, Inventory({n: HostEntry(**table) for n, table in lab.hosts().items()}))


@pytest.fixture
def host(lab: Lab) -> Iterator[Callable[[str], Host]]:
    made: list[Host] = []

    def get(name: str = "pve") -> Host:
        made.append(host_of(lab, name))
        return made[-1]

    yield get
    for one in made:
        one.close()
