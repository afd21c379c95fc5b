"""`opsagent lab list` and `opsagent lab serve`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from opsagent.cli.lab import command
from opsagent_lab import scenario
from opsagent_tools.host import argv
from opsagent_tools.hosts.inventory import load_inventory, open_host


def test_list() -> None:
    done = CliRunner().invoke(command, ["list", "--json"], standalone_mode=False)
    rows = json.loads(done.stdout)["scenarios"]
    assert [row["name"] for row in rows] == scenario.names()
    assert {row["runbook"] for row in rows} <= {"migrate", "launch", "diagnose", "decommission", "upgrade"}
    plain = CliRunner().invoke(command, ["list"], standalone_mode=False)
    assert "--lab story" in plain.stdout


def test_an_unknown_scenario_is_one_error() -> None:
    done = CliRunner().invoke(command, ["serve", "sotry"], standalone_mode=False)
    assert done.return_value == 2
    assert "story" in done.stderr


def test_serve_outlives_its_clients_and_keeps_its_state(small: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from opsagent.cli import main; main()", "lab", "serve", str(small)]
    words += ["--state", str(tmp_path / "lab.json"), "--hosts-file", str(tmp_path / "hosts.toml")]
    for number in range(2):
        serving = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert serving.stdout is not None
            facts = json.loads(serving.stdout.readline())
            assert (facts["simulated"], facts["pid"]) == (True, serving.pid)
            for client in range(2):
                pve = open_host("pve", load_inventory(tmp_path / "hosts.toml"))
                assert argv(pve, "touch", f"/root/{number}-{client}").ok
                pve.close()
            seen = argv(open_host("pve", load_inventory(tmp_path / "hosts.toml")), "ls", "/root").stdout.split()
            assert seen == ["0-0", "0-1", *(["1-0", "1-1"] if number else []), "notes.txt"]
        finally:
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(60) == 0
