"""Launches of recorded servers, replayed by the lab's engine; and a small world to run whole servers in."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from opsagent_lab.clock import LabClock
from opsagent_lab.engine import argv, boot, catalogue, hardware, noise, rules
from opsagent_lab.engine.card import GIB, MIB
from opsagent_lab.engine.launch import Died, Launch, Limits, ModelDir, Say, Shard
from opsagent_lab.engine.settings import Refusal
from opsagent_lab.engine.shape import read_shape
from opsagent_lab.program import join
from opsagent_lab.programs import curl, hf, packages, python, uv
from opsagent_lab.state import Disk, Driver, Gpu, Node, PciDevice, SimHost, SimProcess, Venv
from opsagent_lab.world import World

DATA = Path(__file__).parent.parent / "data"
_BY_FOLDER = {
    "qwen3.6-27b": "Qwen/Qwen3.6-27B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-next-80b": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "qwen3.5-9b": "Qwen/Qwen3.5-9B",
}


def records() -> dict[str, dict[str, Any]]:
    lines = (DATA / "launches.jsonl").read_text().splitlines()
    return {r["id"]: r for r in map(json.loads, lines)}


def config_of(model_dir: str) -> dict[str, Any]:
    name = model_dir.partition("/")[2]
    name = name if name in _BY_FOLDER else re.sub(r"-[ab]$", "", name)
    if name in _BY_FOLDER:
        return catalogue.config_of(_BY_FOLDER[name])
    value: dict[str, Any] = json.loads((DATA / "models" / f"{name}.json").read_text())
    return value


@dataclass
class Replayed:
    """What the engine printed for a recorded launch, and how it ended."""

    lines: list[str] = field(default_factory=list)
    limits: Limits | None = None
    refusal: Refusal | None = None
    died: Died | None = None
    launch: Launch | None = None


def recorded_command(name: str) -> dict[str, Any]:
    """A launch as the header of its log tells it, for those that are not among the records."""
    words = next(line for line in real(name) if "sglang.launch_server" in line and line.startswith("# ")).split()
    at = words.index("sglang.launch_server") + 1
    drop = {"--model-path", "--load-format", "--host", "--port"}
    flags, path = [], ""
    it = iter(words[at:])
    for word in it:
        if word in drop:
            value = next(it)
            path = value if word == "--model-path" else path
        else:
            flags.append(word)
    free = re.search(r"Load weight begin. avail mem=([\d.]+)", "\n".join(real(name)))
    return {
        "id": name, "model_dir": "models/" + path.rpartition("/")[2], "gpu_name": "NVIDIA H200", "gpu_total_mib": 143771,
        "tp": 1, "free_gib_at_load": float(free[1]) if free else None, "flags": flags,
        "dummy": "--load-format" in words,
    }  # fmt: skip


def replay(
    record: dict[str, Any],
    version: str = "0.5.11",
    *,
    shards: tuple[Shard, ...] = (),
    others: tuple[tuple[int, int], ...] = (),
) -> Replayed:
    """Launch as recorded: the same flags, cards and free memory at load begin."""
    out = Replayed()
    config = config_of(record["model_dir"])
    path = f"/models/{record['model_dir'].partition('/')[2]}"
    sm, tp = hardware.sm_of(record["gpu_name"]), record["tp"]
    over = hardware.context_bytes(sm, tp) + hardware.distributed_bytes(sm, tp)
    over += hardware.STREAM_BYTES if tp == 1 else 0
    free = int((record["free_gib_at_load"] or 40) * GIB) + over
    total = record["gpu_total_mib"]
    cards = tuple(hardware.Gpu(i, record["gpu_name"], total, free / MIB, sm, others) for i in range(tp))
    port = "31100" if record["id"] == "f-port-busy" else "31000"
    load = ["--load-format", "dummy"] if record.get("dummy", True) else []
    typed = argv.read(version, ["--model-path", path, *load, "--port", port, *record["flags"]])
    shape = read_shape(config)
    model = ModelDir(
        path,
        config,
        shards,
        generation_config=False,
        generic_tokenizer="--skip-tokenizer-init" not in record["flags"],
    )
    for first in boot.banner("SITE", version):
        out.lines += first.text.split("\n")

    def say(event: Say) -> None:
        rank = "" if event.rank is None else f" TP{event.rank}"
        text = f"[2026-01-01 00:00:00{rank}] {event.text}" if event.stamp else event.text
        out.lines.extend(text.split("\n"))

    for line in noise.generation_config_of(model):
        say(line)
    try:
        settings = rules.resolve(version, typed, {}, shape, cards, note=lambda t: say(Say(t)))
    except Refusal as refusal:
        out.refusal = refusal
        say(boot.refused(refusal, "SITE", "STD"))
        return out
    out.launch = Launch(settings, shape, model, cards, lambda _r: free, site="SITE", std="STD")
    events = boot.boot(out.launch)
    try:
        while True:
            event = next(events)
            if isinstance(event, Say):
                say(event)
    except StopIteration as end:
        out.limits = end.value
    except Died as death:
        out.died = death
    return out


def mask(line: str) -> str:
    """A line without its numbers, paths of packages and time."""
    line = re.sub(r"/srv/(sglang|venv)/lib/python3\.12/site-packages", "SITE", line)
    line = re.sub(r"/usr/lib/python3\.12", "STD", line)
    return re.sub(r"\d+(\.\d+)?", "N", line).rstrip()


_BAR = re.compile(r"\s*(?:(?:Capturing|Compiling)[\w ]+\([^)]*\): *)?\d+%\|.*?\| \d+/\d+ \[[^\]]*\]\s*")


def streams(lines: list[str]) -> dict[str, list[str]]:
    """Masked lines by who printed them (`TP0`, `TP1`, or the main process): ranks interleave differently in every run.

    Progress bars and blank lines are left out.
    """
    out: dict[str, list[str]] = {}
    for line in (_BAR.sub("", text) for text in lines):
        if not line.strip() or line.startswith("# "):
            continue
        found = re.match(r"\[[\d :-]+( TP\d)\]", line)
        out.setdefault(found.group(1).strip() if found else "main", []).append(mask(line))
    return out


def real(name: str) -> list[str]:
    return (DATA / "logs" / f"{name}.log").read_text(encoding="utf-8").split("\n")


# -- a world with one GPU machine


@dataclass
class Lab:
    world: World
    host: SimHost

    def call(self, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> tuple[int, str, str]:
        """Run a program to its end: exit code, stdout, stderr."""
        out, err, done = bytearray(), bytearray(), threading.Event()
        ended: list[int] = []

        def over(_sim: SimProcess, code: int) -> None:
            ended.append(code)
            done.set()

        self.world.spawn(
            self.host, list(words), env=env or {}, out=out.extend, err=err.extend, stdin=BytesIO(stdin), done=over
        )
        assert done.wait(60), words
        return ended[0], out.decode(), err.decode()

    def start(self, *flags: str, python: str = "/opt/sglang/bin/python", log: str = "/root/server.log") -> SimProcess:
        words = [python, "-m", "sglang.launch_server", "--model-path", "/srv/models/m", *flags]
        return self.world.spawn(self.host, words, env={}, log=log)

    def until(self, text: str, sim: SimProcess, log: str = "/root/server.log") -> str:
        """The log once it has `text`, or the process has ended."""
        files = self.world.files(self.host)
        for _ in range(3000):
            seen = files.text(log) if files.exists(log) else ""
            if text in seen or sim.pid not in self.host.processes:
                return files.text(log)
            threading.Event().wait(0.01)
        raise AssertionError(f"never saw {text!r} in: {files.text(log)[-2000:]}")

    def ended(self, sim: SimProcess) -> int:
        """The exit code of a background process, once it has ended."""
        for _ in range(3000):
            if sim.pid not in self.host.processes and sim.exit_code is not None:
                return sim.exit_code
            threading.Event().wait(0.01)
        raise AssertionError("still running")

    def post(self, body: dict[str, Any], path: str = "/v1/chat/completions", *more: str) -> dict[str, Any]:
        code, out, err = self.call(
            "curl", "-sS", *more, "-H", "Content-Type: application/json", "-d", "@-", f"http://127.0.0.1:30000{path}",
            stdin=json.dumps(body).encode(),
        )  # fmt: skip
        assert code == 0, err
        value: dict[str, Any] = json.loads(out)
        return value

    def log(self, path: str = "/root/server.log") -> str:
        return self.world.files(self.host).text(path)


def lab(
    repo: str = "Qwen/Qwen3.6-27B",
    *,
    version: str = "0.5.11",
    cards: int = 2,
    name: str = "NVIDIA RTX A6000",
    total: int = 49140,
    reserved: int = 467,
    capability: str = "8.6",
    speed: float = 3000.0,
    settings: dict[str, Any] | None = None,
    **damage: tuple[str, ...],
) -> Lab:
    """One machine with cards, a driver, an environment under /opt/sglang and a model under /srv/models/m."""
    host = SimHost("gpu", "gpu", addresses=["10.0.0.5"], disks=[Disk("/", 10**13)], booted=1_764_490_000.0)
    host.gpus = [
        Gpu(i, name, f"GPU-{i}", f"0000:4{i}:00.0", total, reserved, compute_capability=capability)
        for i in range(cards)
    ]
    host.pci = [
        PciDevice(f"0000:4{i}:00.0", "0x10de", "0x2230", "0x030000", "VGA compatible controller", name, driver="nvidia")
        for i in range(cards)
    ]
    host.driver = Driver("580.126.09", "580.126.09", "580.126.09", "13.0")
    registry = join(python.PROGRAMS, curl.PROGRAMS, hf.PROGRAMS, uv.PROGRAMS, packages.PROGRAMS)
    world = World({"gpu": host}, LabClock(speed), registry, settings=settings or {})
    host.nodes["/"] = Node("dir", 0o755)
    files = world.files(host)
    for folder in ("/dev", "/root", "/usr/bin", "/opt/sglang/bin", "/srv/models"):
        files.mkdir(folder, parents=True)
    for i in range(cards):
        files.put(f"/dev/nvidia{i}", Node("char", 0o666, device=(195, i)))
    files.put("/dev/nvidiactl", Node("char", 0o666, device=(195, 255)))
    files.put("/dev/nvidia-uvm", Node("char", 0o666, device=(host.uvm_major, 0)))
    for path, program in _programs():
        files.put(path, Node(mode=0o755, program=program))
    files.write("/opt/sglang/pyvenv.cfg", "home = /usr/bin\n")
    host.venvs["/opt/sglang"] = Venv(
        "3.12.3",
        {"sglang": version, "torch": "2.11.0", "torchcodec": "0.11.1", "huggingface-hub": "1.33.0"},
        cuda="13.0",
    )
    catalogue.place(files, "/srv/models/m", repo, **damage)
    return Lab(world, host)


def _programs() -> Iterator[tuple[str, str]]:
    yield "/opt/sglang/bin/python", "python"
    yield "/opt/sglang/bin/sglang", "sglang"
    yield "/usr/bin/python3", "python3"
    for name in ("curl", "hf", "uv", "pip"):
        yield f"/usr/bin/{name}", name
