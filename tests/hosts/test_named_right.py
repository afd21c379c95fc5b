"""runbooks/launch.md over real SSH against a machine that pretends a card: what goes wrong is named, and nothing stays."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts.pretend import GRAPHS, Machine, machine
from hosts.sshd import Sshd, free_port, sshd

from opsagent.checked import checked_runbook
from opsagent.data import find_runbook
from opsagent.places import real_places
from opsagent.report.model import StatusReport
from opsagent.session import Wish, begin, conduct

HOSTS = """
[hosts.box]
address = "127.0.0.1"
port = {port}
user = "{user}"
identity = "{folder}/key"
known_hosts = "{folder}/known_hosts"
ssh_config = "none"
"""


@dataclass
class Box:
    """The machine, its SSH server, and the product's own launch.md with one more root."""

    made: Machine
    server: Sshd
    folder: Path
    port: int

    @property
    def params(self) -> dict[str, Any]:
        return {"model_dir": str(self.made.model), "python": str(self.made.python), "load_format": "dummy",
                "port": self.port, "wish": GRAPHS.split(), "sglang": "0.5.11"}  # fmt: skip

    def launch(self, name: str, *, approve: str = "declared", **more: Any) -> tuple[StatusReport, list[dict[str, Any]]]:
        """One run, in simulated haste: waits are short, everything else is real."""
        places = real_places(
            checked_runbook(self.runbook), ["target=box"], str(self.folder / "hosts.toml"), self.folder
        )
        places.speed = 15.0
        out = self.folder / name
        wish = Wish(runbook=checked_runbook(self.runbook), places=places, params=self.params | more, folder=out,
                    approve=approve)  # fmt: skip
        with begin(wish) as session:
            report = conduct(session)
        places.close()
        return report, [json.loads(line) for line in (out / "events.jsonl").read_text(encoding="utf-8").splitlines()]

    @property
    def runbook(self) -> Path:
        return self.folder / "launch.md"

    def processes(self) -> dict[int, str]:
        """Pretended servers, schedulers and squatters of this machine that live, and their command lines."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (
                    entry.name.isdigit()
                    and f"PRETEND_GPU={self.folder}/gpu\0".encode() in (entry / "environ").read_bytes()
                ):
                    words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ").strip()
                    found |= {int(entry.name): words} if words else {}
        return found


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("box")
    made = machine(folder)
    with sshd(folder, env=f"PATH={made.path}") as server:
        (folder / "hosts.toml").write_text(HOSTS.format(port=server.port, user=server.user, folder=folder))
        port = free_port()
        text = find_runbook("runbooks/launch.md").read_text(encoding="utf-8")
        text = text.replace("roots: [", f"roots: [{folder}, ").replace(
            "ports: [30000-30010]", f"ports: [{port}-{port + 1}]"
        )
        (folder / "launch.md").write_text(text)
        opened = Box(made, server, folder, port)
        yield opened
        for pid in opened.processes():
            os.kill(pid, signal.SIGKILL)
        for run in folder.glob("*/events.jsonl"):  # root's logs are where launch_sglang puts them
            name = json.loads(run.read_text(encoding="utf-8").splitlines()[0])["data"]["run"]
            for log in Path("/var/log/sglang").glob(f"opsagent-{name}-*"):
                log.unlink()


def nothing_left(box: Box) -> None:
    assert box.processes() == {}
    assert box.made.used_mib() == 0


def tools(events: list[dict[str, Any]], kind: str = "call.started") -> list[str]:
    names = {e["data"]["call"]["id"]: e["data"]["call"]["tool"] for e in events if e["type"] == "call.intent"}
    return [names[e["data"]["call"]] for e in events if e["type"] == kind]


def result_of(events: list[dict[str, Any]], tool: str) -> dict[str, Any]:
    names = {e["data"]["call"]["id"]: e["data"]["call"]["tool"] for e in events if e["type"] == "call.intent"}
    found = [e["data"]["result"] for e in events if e["type"] == "call.finished" and names[e["data"]["call"]] == tool]
    return dict(found[-1])


def test_the_link_is_lost_while_it_loads(box: Box) -> None:
    """As a user starts it. Both sessions that served it are killed when the weights are read: one server, one load."""
    box.made.server("dense8b-cg.log", delay=0.12)
    env = {**os.environ, "XDG_STATE_HOME": str(box.folder / "state"), "XDG_CONFIG_HOME": str(box.folder / "config")}
    given = [f"{name}={' '.join(v) if isinstance(v, list) else v}" for name, v in box.params.items()]
    words = ["run", str(box.runbook), "--hosts", str(box.folder / "hosts.toml"), "--host", "target=box", "--json",
             "--approve", "declared", "--out", str(box.folder / "lost")]  # fmt: skip
    words += [word for one in given for word in ("-p", one)]
    run = subprocess.Popen(
        [sys.executable, "-c", "from opsagent.cli import main; main()", *words], env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=box.folder,
    )  # fmt: skip
    cuts = 0
    for _ in range(1200):
        logs = list((box.folder / "jobs").glob("*/log")) + list(Path("/var/log/sglang").glob("opsagent-*.log"))
        if any(
            "Load weight begin" in log.read_text(errors="replace")
            for log in logs
            if log.stat().st_mtime > time.time() - 60
        ):
            cuts = box.server.cut()
            break
        if run.poll() is not None:
            break
        time.sleep(0.05)
    out, err = run.communicate(timeout=240)
    assert cuts > 0, f"the link was not cut: {err[-2000:]}"
    assert run.returncode == 0, err[-3000:]
    report = json.loads(out)
    assert (report["status"], report["weight_loads"]) == ("verified", 1)
    assert len([words for words in box.processes().values() if "pretend_server" in words]) == 1
    stopped = subprocess.run(
        [sys.executable, "-c", "from opsagent.cli import main; main()", "stop", str(box.folder / "lost")],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=box.folder,
    )  # fmt: skip
    assert stopped.returncode in (0, 130), stopped.stderr[-2000:]
    nothing_left(box)


def test_a_busy_port_is_named_before_anything_is_loaded(box: Box) -> None:
    with socket.create_server(("127.0.0.1", box.port)):
        report, events = box.launch("busy")
    assert any(item.cause == "port-in-use" for item in report.incidents)
    assert (report.weight_loads, report.status) == (
        0,
        "waiting-approval",
    )  # the runbook asks whether another one will do
    assert "launch_sglang" not in tools(events)
    nothing_left(box)


@pytest.mark.soak
def test_a_port_that_is_taken_during_the_load(box: Box) -> None:
    """0.5.11 finds out only after the full load; the other process is none of ours and stays."""
    box.made.server("f-port-busy.log", delay=0.02, PRETEND_BIND="no")
    taken = threading.Thread(target=squat, args=(box, sockets := list[socket.socket]()))
    taken.start()
    report, events = box.launch("taken", wish=[*GRAPHS.split()[:-2], "--disable-cuda-graph"])
    taken.join()
    assert len(sockets) == 1, "the port was taken while it loaded"
    sockets[0].close()
    (incident,) = [item for item in report.incidents if item.cause == "port-in-use"]
    assert (report.status, incident.found_by, incident.weight_loads_lost) == ("failed", "launch", report.weight_loads)
    assert incident.remedy == {"--port": str(box.port + 1)} or incident.remedy == {"--port": box.port + 1}
    launched = result_of(events, "launch_sglang")  # the recorded log ends so wherever it listens
    assert (launched["state"], launched["cause"], launched["gpu_memory_back"]) == ("failed", "port-in-use", True)
    nothing_left(box)


def squat(box: Box, sockets: list[socket.socket]) -> None:
    """Take the port as soon as the weights are being read."""
    for _ in range(6000):
        if box.made.used_mib():
            sockets.append(socket.create_server(("127.0.0.1", box.port)))
            return
        time.sleep(0.01)


def test_a_scheduler_that_the_kernel_killed(box: Box) -> None:
    """What this run left behind is ended; another server's worker is not touched."""
    other = subprocess.Popen(["sglang::scheduler", "60"], executable="/bin/sleep")
    try:
        box.made.server("f-scheduler-sigkill.log", PRETEND_KILL="Scheduler hit|Rank 0 scheduler", PRETEND_ENDS="1")
        report, events = box.launch("killed")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    launched = result_of(events, "launch_sglang")
    assert launched["cause"] == "worker-sigkilled"
    assert any(item.cause == "worker-sigkilled" for item in report.incidents)
    assert launched["gpu_memory_back"] is True
    nothing_left(box)


def test_a_wrong_parser_is_named_by_its_own_words_and_costs_nothing(box: Box) -> None:
    report, events = box.launch("typo", approve="never", wish=[*GRAPHS.split(), "--tool-call-parser", "qwen3_codr"])
    names = {e["data"]["call"]["id"]: e["data"] for e in events if e["type"] == "call.intent"}
    refused = [e["data"]["result"] for e in events if e["type"] == "call.finished"
               and names[e["data"]["call"]]["bind"] == "asked"]  # fmt: skip
    assert [(r["accepted"], r["cause"]) for r in refused] == [(False, "invalid-flag-value")]
    assert "invalid choice: 'qwen3_codr'" in refused[0]["words"], "SGLang's own words"
    assert any(item.cause == "invalid-flag-value" for item in report.incidents)
    assert (report.weight_loads, "launch_sglang" in tools(events)) == (0, False)
    nothing_left(box)


def test_a_launch_that_does_not_fit_is_named_from_its_log(box: Box) -> None:
    """Memory that the card does not show (a neighbour in another container): the arithmetic cannot know."""
    box.made.server("f-load-oom.log", PRETEND_ENDS="137")
    report, events = box.launch("full")
    launched = result_of(events, "launch_sglang")
    assert launched["cause"] in ("oom-weight-load", "gpu-memory-occupied")
    assert (launched["state"], launched["exit_code"], launched["gpu_memory_back"]) == ("failed", 137, True)
    assert report.status == "failed"
    assert report.endpoint is None
    nothing_left(box)


def test_a_card_that_is_full_is_named_before_the_load(box: Box) -> None:
    box.made.hold(os.getpid(), 139_000)
    try:
        report, events = box.launch("held")
    finally:
        (box.folder / "gpu" / str(os.getpid())).unlink()
    assert any(item.cause == "gpu-memory-occupied" for item in report.incidents)
    assert report.weight_loads == 0
    assert "launch_sglang" not in tools(events)
