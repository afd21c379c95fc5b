"""download_model over real SSH: the real huggingface_hub against a hub on loopback that misbehaves."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts.hub import REPO, SHARDS, Fault, Hub, hub
from hosts.sshd import Sshd

from opsagent_tools.clock import FastClock
from opsagent_tools.download_model import DownloadModelArgs, DownloadModelResult, run
from opsagent_tools.hosts.ssh import SshHost
from opsagent_tools.read_config import ReadConfigArgs
from opsagent_tools.read_config import run as read_config
from opsagent_tools.tool import Context

FULL = """
import builtins, errno, io
plain, room = io.open, [600_000]
def limited(path, *args, **more):
    out = plain(path, *args, **more)
    if not str(path).endswith(".incomplete") or "r" in (args[0] if args else more.get("mode", "r")):
        return out
    write = out.write
    class Disk:
        def __getattr__(self, name): return getattr(out, name)
        def __enter__(self): return self
        def __exit__(self, *_a): out.close()
        def write(self, data):
            room[0] -= len(data)
            if room[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(data)
    return Disk()
builtins.open = io.open = limited
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a serving environment's `python` and `hf`."""
    (tmp_path / "env").mkdir()
    for name, words in (("python", sys.executable), ("hf", f"{Path(sys.executable).parent}/hf")):
        path = tmp_path / "env" / name
        path.write_text(f'#!/bin/sh\n[ -d {tmp_path}/full ] && export PYTHONPATH={tmp_path}/full\nexec {words} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    yield tmp_path
    for log in Path("/var/log/opsagent").glob(f"opsagent-{run_id(tmp_path)}-*"):
        log.unlink()


def run_id(place: Path) -> str:
    return place.name.replace("_", "")


def fetch(server: Sshd, place: Path, at: Hub, call: str = "c1", token: str = "", **more: Any) -> DownloadModelResult:
    host = SshHost("box", server.target)
    env = {"HF_ENDPOINT": at.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(place / "home"),
           **({"HF_TOKEN": token} if token else {})}  # fmt: skip
    args = DownloadModelArgs(
        repo=REPO, path=str(place / "model"), python=str(place / "env" / "python"), env=env, stall_s=40, **more
    )
    try:
        return run(host, args, Context(run_id(place), call, clock=FastClock(20.0)))
    finally:
        host.close()


def whole(place: Path, at: Hub) -> bool:
    return all((place / "model" / name).read_bytes() == data for name, data in at.files.items())


def test_all_is_well(server: Sshd, place: Path) -> None:
    with hub() as at:
        seen = fetch(server, place, at)
        assert (seen.complete, seen.verified, seen.stalls, seen.refetched) == (True, True, 0, [])
        assert whole(place, at)
        host = SshHost("box", server.target)
        assert read_config(host, ReadConfigArgs(path=str(place / "model"))).complete, "index, headers, sizes"
        host.close()
        asked = dict(at.asked)
        again = fetch(server, place, at, "c2")
    assert (again.complete, again.created, again.attempts) == (True, False, [])
    assert at.asked == asked, "what is there and right is not fetched again"


def test_a_stall_is_cut_and_the_file_fetched_again(server: Sshd, place: Path) -> None:
    with hub(fault := Fault("stall", SHARDS[1])) as at:
        seen = fetch(server, place, at)
        assert fault.hits == 1
        assert (seen.complete, seen.verified, seen.stalls) == (True, True, 1)
        assert whole(place, at)


def test_a_truncated_body_and_a_busy_hub(server: Sshd, place: Path) -> None:
    """A cut body is never a whole file; "later" is later, before the first byte and between two."""
    busy = Fault("status", status=429, headers={"Retry-After": "12"})
    cut = Fault("truncate", SHARDS[0], times=2)
    with hub(busy, cut, Fault("status", SHARDS[1], status=429, headers={"Retry-After": "1"})) as at:
        seen = fetch(server, place, at)
        assert [fault.hits for fault in at.faults] == [1, 2, 1]
        assert (seen.complete, seen.verified) == (True, True)
        assert whole(place, at)


def test_a_body_of_the_right_length_with_wrong_bytes(server: Sshd, place: Path) -> None:
    with hub(Fault("corrupt", SHARDS[0])) as at:
        seen = fetch(server, place, at)
        assert (seen.complete, seen.refetched) == (True, [SHARDS[0]])
        assert whole(place, at)


@pytest.mark.soak
def test_a_file_that_is_always_wrong_is_no_model(server: Sshd, place: Path) -> None:
    with hub(Fault("corrupt", SHARDS[0], times=99)) as at:
        seen = fetch(server, place, at, attempts=2)
    assert (seen.complete, seen.verified, seen.cause, seen.bad) == (
        False,
        False,
        "checkpoint-shard-corrupt",
        [SHARDS[0]],
    )


def test_without_a_token_and_without_a_grant(server: Sshd, place: Path) -> None:
    def gated(made: Hub) -> None:
        made.token = "hf_right0123456789"

    with hub(change=gated) as at:
        refused = fetch(server, place, at)
        assert (refused.complete, refused.cause) == (False, "hf-auth-missing")
        at.granted = False
        denied = fetch(server, place, at, token="hf_right0123456789")
        assert (denied.complete, denied.cause) == (False, "hf-access-not-granted")
        at.granted = True
        seen = fetch(server, place, at, "c3", token="hf_right0123456789")
        assert seen.complete
        assert "hf_right" not in seen.model_dump_json()
    assert not list((server.folder / "jobs").glob("*/env"))


def test_a_disk_that_fills_up(server: Sshd, place: Path) -> None:
    (place / "full").mkdir()
    (place / "full" / "sitecustomize.py").write_text(FULL)
    with hub() as at:
        seen = fetch(server, place, at, attempts=2)
    assert (seen.complete, seen.cause) == (False, "disk-full")
    assert not (place / "model" / SHARDS[1]).exists() or not (place / "model" / SHARDS[0]).exists()


@pytest.mark.soak
def test_nothing_unfinished_is_left_after_a_stall_that_does_not_end(server: Sshd, place: Path) -> None:
    with hub(Fault("stall", SHARDS[0], times=99)) as at:
        seen = fetch(server, place, at, attempts=2)
    assert (seen.complete, seen.cause, seen.failed) == (False, "hf-download-stalled", True)
    assert list((place / "model").rglob("*.incomplete")) == []
