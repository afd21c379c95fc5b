"""One writer per host: another run is refused and told by whom, an expired lock is broken in the open, one's own retaken."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kill.small import book, effects, go_on, hosts_file, small_lab, start

from opsagent.journal import read_log
from opsagent.journal.lock import boot_id
from opsagent.locking import is_dead
from opsagent.places import real_places
from opsagent_lab.lab import Lab
from opsagent_tools import probes
from opsagent_tools.host import Host
from opsagent_tools.host_lock import HostLocked, Owner, release, take
from opsagent_tools.hosts.local import LocalHost

PATH = "/var/lib/opsagent/opsagent-host.lock"


def lock_of(lab: Lab) -> dict[str, Any] | None:
    files = lab.world.files(lab.world.host("box"))
    return json.loads(files.text(PATH)) if files.exists(PATH) else None


def put(lab: Lab, run: str, seconds: float) -> None:
    value = {
        "run": run,
        "operator": "ann",
        "machine": "desk",
        "pid": 41,
        "since": 0,
        "until": lab.world.now() + seconds,
    }
    files = lab.world.files(lab.world.host("box"))
    files.mkdir("/var/lib/opsagent", parents=True)
    files.write(PATH, json.dumps(value))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with small_lab(tmp_path) as opened:
        yield opened


def of_type(folder: Path, *types: str) -> list[dict[str, Any]]:
    return [event.data for event in read_log(folder).events if event.type in types]


def test_another_run_is_refused_before_its_first_effect_and_goes_on_when_it_may(lab: Lab, tmp_path: Path) -> None:
    put(lab, "f00d", 10**6)
    before, folder = effects(lab), tmp_path / "run"
    report = start(folder, hosts_file(lab, tmp_path))
    assert (report.status, report.exit_code) == ("transient", 3)
    assert report.failed is not None
    assert "f00d of ann@desk" in report.failed.text
    assert effects(lab) == before
    assert lock_of(lab) is not None
    assert of_type(folder, "call.started")[-1] == {"call": "c1"}  # it only read
    lab.world.files(lab.world.host("box")).unlink(PATH)  # the other run gives it back
    assert go_on(folder).status == "verified"
    assert effects(lab)["ledger"] == "first\nsecond\n"
    assert lock_of(lab) is None
    assert [sorted(data) for data in of_type(folder, "host.locked", "host.released")] == [
        ["broke", "host", "path", "until"], ["host"],
    ]  # fmt: skip


def test_an_expired_lock_is_broken_in_the_open(lab: Lab, tmp_path: Path) -> None:
    put(lab, "dead", -1.0)
    folder = tmp_path / "run"
    assert start(folder, hosts_file(lab, tmp_path)).status == "verified"
    assert of_type(folder, "host.locked")[0]["broke"]["run"] == "dead"


def test_the_lock_of_a_process_that_is_known_to_be_gone_does_not_hold(lab: Lab, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = lent(lab, tmp_path)
    here = {"machine": platform.node(), "boot": boot_id()}
    take(host, Owner("dead", "ann", platform.node(), gone.pid, boot_id()))
    assert not is_dead({**here, "pid": os.getpid()})
    assert not is_dead({**here, "pid": gone.pid, "boot": "another"})
    folder = tmp_path / "run"
    assert start(folder, hosts_file(lab, tmp_path)).status == "verified"
    assert of_type(folder, "host.locked")[0]["broke"]["run"] == "dead"


def test_a_run_that_died_takes_its_own_lock_again(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hosts = hosts_file(lab, tmp_path)
    first = start(folder, hosts)
    put(lab, first.run, 10**6)  # as a death leaves it
    host = lent(lab, tmp_path)
    with pytest.raises(HostLocked):
        take(host, Owner("other"))
    assert take(host, Owner(first.run)).broke is None


def lent(lab: Lab, folder: Path) -> Host:
    """The lab's host, for a tool."""
    return real_places(book(), ["target=box"], hosts_file(lab, folder), folder).open("target")


# --- the real script, on this machine ------------------------------------------------------------------------------

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    host = LocalHost()

    def asked(op: str, run: str = "", ttl_s: float = 60.0, **more: Any) -> dict[str, Any]:
        wanted = {"op": op, "run": run, "operator": "ann", "machine": "desk", "pid": 7, "ttl_s": ttl_s, **more}
        return probes.ask(host, "lock", {"places": [str(tmp_path)], **wanted})

    return asked


def test_the_script_gives_the_lock_to_one(ask: Ask) -> None:
    assert ask("take", "a")["taken"]
    refused = ask("take", "b")
    assert (refused["taken"], refused["holder"]["run"], refused["why"]) == (False, "a", "held")
    assert ask("take", "a")["taken"]  # renewed
    assert ask("release", "b") == {"released": False}
    assert ask("release", "a") == {"released": True}
    assert ask("read") == {"holder": None, "path": ""}
    assert ask("take", "b", ttl_s=-1)["broke"] is None
    assert ask("take", "c")["broke"]["run"] == "b"


def test_a_place_that_another_user_locked_counts(ask: Ask, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert ask("take", "a", places=[str(other)])["taken"]
    both = [str(tmp_path), str(other)]
    assert not ask("take", "b", places=both)["taken"]
    assert ask("take", "a", ttl_s=-1, places=[str(other)])["taken"]
    assert ask("take", "b", places=both)["broke"]["run"] == "a"


def test_what_cannot_be_written_is_an_error_and_no_lock(ask: Ask, tmp_path: Path) -> None:
    assert "error" in ask("take", "a", places=[str(tmp_path / "nowhere")])


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    def start_one(name: int) -> subprocess.Popen[str]:
        wanted = {"op": "take", "run": f"r{name}", "ttl_s": 60, "places": [str(tmp_path)]}
        words = [sys.executable, "-c", probes.script("lock"), json.dumps(wanted)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    answers = [json.loads(process.communicate()[0]) for process in [start_one(n) for n in range(12)]]
    assert sum(answer["taken"] for answer in answers) == 1
    assert len({answer["holder"]["run"] for answer in answers if not answer["taken"]}) == 1


def test_on_this_machine(tmp_path: Path) -> None:
    host = LocalHost()
    held = take(host, Owner("test-lock", "me", "here", 1), ttl_s=30)
    assert Path(held.path).exists()
    with pytest.raises(HostLocked) as refused:
        take(host, Owner("another"))
    assert refused.value.exit_code == 3
    assert release(host, "test-lock")
    assert not Path(held.path).exists()
