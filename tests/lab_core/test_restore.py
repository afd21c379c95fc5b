"""A lab that was saved and opened again: the same state, servers that serve again, jobs that go on, reboots that end."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lab_core.conftest import host_of

import opsagent_lab
from opsagent_lab.lab import Lab
from opsagent_lab.scenario import ScenarioError
from opsagent_tools.host import argv


def _copy(state: Path) -> Path:
    """The file as a killed program would leave it: from before `close`."""
    copy = state.with_suffix(".killed")
    copy.write_bytes(state.read_bytes())
    return copy


def test_files_units_and_bindings_survive(small: Path, tmp_path: Path) -> None:
    state = tmp_path / "lab.json"
    with opsagent_lab.open(str(small), state=state) as lab:
        pve = host_of(lab, "pve")
        argv(pve, "cp", "/root/notes.txt", "/root/copy")
        argv(pve, "head", "-c", "3000", "/dev/zero")
        argv(pve, "tee", "/root/bytes", stdin="\x00é\n")
        assert argv(pve, "sh", "-c", "echo 0000:41:00.0 > /sys/bus/pci/drivers/nvidia/unbind").ok
        before, killed = lab.snapshot(), _copy(state)
    for file in (state, killed):
        with opsagent_lab.open(str(small), state=file) as again:
            assert again.snapshot() == before
            assert argv(host_of(again, "pve"), "cat", "/root/bytes").stdout == "\x00é\n"


def test_a_job_goes_on_and_its_exit_code_is_kept(small: Path, tmp_path: Path) -> None:
    state = tmp_path / "lab.json"
    with opsagent_lab.open(str(small), state=state) as lab:
        assert argv(host_of(lab, "pve"), "systemd-run", "--unit=job", "-p", "RemainAfterExit=yes", "sleep", "50").ok
        killed = _copy(state)
    with opsagent_lab.open(str(small), state=killed) as again:
        pve = host_of(again, "pve")
        assert argv(pve, "systemctl", "is-active", "job").stdout == "active\n"
        argv(pve, "sleep", "59")
        assert "SubState=exited" in argv(pve, "systemctl", "show", "job", "-p", "SubState").stdout


def test_a_reboot_that_was_under_way_ends(small: Path, tmp_path: Path) -> None:
    state = tmp_path / "lab.json"
    with opsagent_lab.open(str(small), state=state) as lab:
        boot = lab.world.host("pve").boot_id
        argv(host_of(lab, "pve"), "reboot")
        killed = _copy(state)
    with opsagent_lab.open(str(small), state=killed) as again:
        pve = again.world.host("pve")
        for _ in range(100):
            if pve.boot_id != boot:
                break
            with contextlib.suppress(Exception):
                argv(host_of(again, "other"), "sleep", "5")
        assert pve.boot_id != boot
        assert pve.counters["reboots"] == 1


def test_a_server_serves_again_with_the_same_seed(tmp_path: Path) -> None:
    state = tmp_path / "lab.json"

    def seed(lab: Lab) -> object:
        return lab.oracle_facts()["kpro6"]["servers"]["30000"]["info"]["random_seed"]

    with opsagent_lab.open("story", state=state) as lab:
        first = seed(lab)
        assert argv(host_of(lab, "kpro6"), "true").ok
        killed = _copy(state)
    with opsagent_lab.open("story", state=killed) as again:
        assert seed(again) == first
        assert again.world.bugs == []
        assert again.world.host("kpro6").counters == {}
        asked = ("curl", "-s", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:30000/health")
        assert argv(host_of(again, "kpro6"), *asked).stdout == "200"


@pytest.mark.parametrize("text", ["", "{}", '{"version": 99}', '{"version": 1, "scenario": "small"}', "\x00"])
def test_a_file_that_is_no_saved_lab_is_one_clear_error(small: Path, tmp_path: Path, text: str) -> None:
    state = tmp_path / "lab.json"
    state.write_text(text)
    with pytest.raises(ScenarioError, match="not a saved lab"):
        opsagent_lab.open(str(small), state=state)


def test_commands_that_end_together_are_saved_one_by_one(small: Path, tmp_path: Path) -> None:
    with opsagent_lab.open(str(small), state=tmp_path / "lab.json") as lab:
        pve = host_of(lab, "pve")
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda n: argv(pve, "touch", f"/root/{n}"), range(60)))
        assert all(one.ok for one in done)
        assert lab.world.bugs == []
        lab.save()
    with opsagent_lab.open(str(small), state=tmp_path / "lab.json") as again:
        assert len(again.world.files(again.world.host("pve")).listdir("/root")) == 61
