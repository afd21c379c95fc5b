"""Other people's clients against the lab: Fabric and OpenSSH's ssh, compared with our own transport."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from fabric import Connection  # type: ignore[import-untyped]
from lab_core.conftest import host_of

from opsagent_lab.lab import Lab
from opsagent_tools.host import argv

COMMANDS = [
    "uname -a",
    "cat /root/notes.txt",
    "ls -la /root",
    "nvidia-smi -L",
    "pct list",
    "no-such-thing",
    "sh -c 'exit 3'",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_fabric_sees_the_same(lab: Lab, command: str) -> None:
    table = lab.hosts()["pve"]
    connection = Connection(
        "127.0.0.1", user="root", port=table["port"],
        connect_kwargs={"key_filename": table["identity"], "look_for_keys": False, "allow_agent": False},
    )  # fmt: skip
    connection.client.load_host_keys(table["known_hosts"])
    with connection:
        theirs = connection.run(command, hide=True, warn=True, in_stream=False)
    ours = argv(host_of(lab, "pve"), "sh", "-c", command)
    assert (theirs.exited, theirs.stdout) == (ours.exit_code, ours.stdout)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh client on this machine")
@pytest.mark.parametrize("command", COMMANDS)
def test_openssh_sees_the_same(lab: Lab, command: str) -> None:
    table = lab.hosts()["pve"]
    options = [
        "BatchMode=yes",
        f"UserKnownHostsFile={table['known_hosts']}",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=yes",
    ]
    words = ["ssh", "-F", "none", "-p", str(table["port"]), "-i", table["identity"]]
    words += [part for option in options for part in ("-o", option)]
    theirs = subprocess.run(
        [*words, "root@127.0.0.1", command], capture_output=True, text=True, timeout=120, check=False
    )
    ours = argv(host_of(lab, "pve"), "sh", "-c", command)
    assert (theirs.returncode, theirs.stdout) == (ours.exit_code, ours.stdout)
