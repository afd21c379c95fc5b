from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts.sshd import Sshd, sshd

from opsagent_tools.hosts.ssh import SshHost


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    folder: Path = tmp_path_factory.mktemp("sshd")
    with sshd(folder) as running:
        yield running


@pytest.fixture
def host(server: Sshd) -> Iterator[SshHost]:
    opened = SshHost("box", server.target)
    yield opened
    opened.close()
