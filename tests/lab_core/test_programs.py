"""What the programs of the lab do to the state, and what they refuse, as the real ones do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opsagent_lab.lab import Lab
from opsagent_tools.host import Host, argv

Get = Callable[..., Host]


def test_a_machine_sees_the_processes_of_its_containers_under_other_pids(lab: Lab, host: Get) -> None:
    inside, pve = host("pve/ct129"), host()
    argv(inside, "systemd-run", "--unit=work", "sleep", "100000")
    pid = int(argv(inside, "systemctl", "show", "work", "-p", "MainPID", "--value").stdout)
    rows = argv(pve, "ps", "-eo", "pid,args").stdout.splitlines()
    outer = next(int(row.split()[0]) for row in rows if row.endswith("sleep 100000"))
    assert outer != pid
    assert argv(pve, "cat", f"/proc/{outer}/cgroup").stdout == "0::/lxc/129/ns/system.slice/work.service\n"
    assert argv(pve, "kill", str(outer)).ok
    argv(pve, "sleep", "2")
    assert argv(inside, "systemctl", "is-active", "work").exit_code == 3


def test_a_stopped_container_takes_no_commands_and_its_devices_come_with_the_next_start(host: Get) -> None:
    pve = host()
    assert argv(pve, "pct", "set", "129", "-dev0", "/dev/nvidia0", "-dev1", "/dev/nvidiactl").ok
    assert argv(host("pve/ct129"), "ls", "/dev").stdout.count("nvidia") == 0
    assert argv(pve, "pct", "stop", "129").ok
    refused = argv(pve, "pct", "exec", "129", "--", "true")
    assert refused.exit_code != 0
    assert refused.stderr == "container '129' not running!\n"
    assert argv(pve, "pct", "start", "129").ok
    assert argv(host("pve/ct129"), "ls", "/dev").stdout.split().count("nvidia0") == 1
    assert argv(pve, "pct", "start", "129").stderr == "CT 129 already running\n"
    assert "does not exist" in argv(pve, "pct", "status", "130").stderr


def test_a_container_whose_device_is_missing_does_not_start(host: Get) -> None:
    pve = host()
    argv(pve, "pct", "set", "129", "-dev0", "/dev/nvidia7")
    argv(pve, "pct", "stop", "129")
    started = argv(pve, "pct", "start", "129")
    assert started.exit_code != 0
    assert "Device /dev/nvidia7 does not exist" in started.stderr
    assert argv(pve, "pct", "status", "129").stdout == "status: stopped\n"


def test_rebinding_a_card_by_sysfs(lab: Lab, host: Get) -> None:
    pve, card = host(), "0000:41:00.0"
    assert argv(pve, "tee", "/sys/bus/pci/drivers/nvidia/unbind", stdin=card).ok
    assert argv(pve, "nvidia-smi", "-L").stdout.count("GPU ") == 1
    again = argv(pve, "tee", "/sys/bus/pci/drivers/nvidia/unbind", stdin=card)
    assert (again.exit_code, "No such device" in again.stderr) == (1, True)
    assert argv(pve, "tee", f"/sys/bus/pci/devices/{card}/driver_override", stdin="vfio-pci").ok
    assert argv(pve, "tee", "/sys/bus/pci/drivers_probe", stdin=card).ok
    assert "Kernel driver in use: vfio-pci" in argv(pve, "lspci", "-nnks", "41:00.0").stdout


def test_rsync_compares_size_unless_told_to_hash(host: Get) -> None:
    pve = host()
    argv(pve, "sh", "-c", "mkdir /a /b; echo one > /a/x; echo two > /b/x")
    assert argv(pve, "rsync", "-ain", "/a/", "/b/").stdout == ""
    assert argv(pve, "rsync", "-ain", "--checksum", "/a/", "/b/").stdout == ">fc........ x\n"
    assert argv(pve, "rsync", "-a", "--checksum", "/a/", "/b/").ok
    assert argv(pve, "cat", "/b/x").stdout == "one\n"
    assert argv(pve, "rsync", "-a", "--delete-everything", "/a/", "/b/").exit_code == 1


def test_a_full_disk(lab: Lab, host: Get) -> None:
    pve = host()
    disk = lab.world.host("pve").disks[0]
    disk.base_used = disk.size
    refused = argv(pve, "cp", "/root/notes.txt", "/root/more")
    assert refused.exit_code == 1
    assert "No space left on device" in refused.stderr
    assert not argv(pve, "test", "-e", "/root/more").ok


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        (["cat", "/nope"], 1, "cat: /nope: No such file or directory\n"),
        (["ls", "/nope"], 2, "ls: cannot access '/nope': No such file or directory\n"),
        (["mkdir", "/root"], 1, "mkdir: cannot create directory '/root': File exists\n"),
        (["rm", "/etc"], 1, "rm: cannot remove '/etc': Is a directory\n"),
        (["rmdir", "/etc"], 1, "rmdir: failed to remove '/etc': Directory not empty\n"),
        (["cp", "/etc", "/root/etc"], 1, "cp: -r not specified; omitting directory '/etc'\n"),
        (["mv", "/nope", "/x"], 1, "mv: cannot stat '/nope': No such file or directory\n"),
        (["stat", "/nope"], 1, "stat: cannot stat '/nope': No such file or directory\n"),
        (["grep", "[", "/root/notes.txt"], 2, None),
        (["kill", "99999"], 1, None),
        (["timeout"], 125, None),
        (["systemctl", "start", "nope"], 5, "Failed to start nope.service: Unit nope.service not found.\n"),
        (["getconf", "NOPE"], 2, "getconf: Unrecognized variable `NOPE'\n"),
        (["head", "-c", "x", "/root/notes.txt"], 1, None),
    ],
)
def test_what_goes_wrong_says_so(host: Get, words: list[str], code: int, err: str | None) -> None:
    done = argv(host(), *words)
    assert done.exit_code == code
    assert done.stderr == err if err is not None else done.stderr
