"""A machine that has no GPU and pretends one H200: nvidia-smi, a serving environment, Qwen3-8B's configuration.

Everything is honest but the card: real processes, sockets, files and SSH; the logs are those of real servers; memory of
the card is what living processes noted, so what is not ended is seen.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent.parent
TOTAL_MIB, KEPT_MIB = 143771, 616

SMI = """#!{python}
import os, sys
from pathlib import Path
gpu, total, kept = Path("{gpu}"), {total}, {kept}
def living(pid):
    try:
        return Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
held = {{int(p.name): int(p.read_text()) for p in gpu.iterdir() if living(p.name)}}
used = sum(held.values()) + 2
rows = {{"index": "0", "uuid": "GPU-77", "name": "NVIDIA H200", "pci.bus_id": "00000000:19:00.0", "memory.total": total,
        "memory.used": used, "memory.free": total - kept - used, "compute_cap": "9.0", "ecc.mode.current": "Enabled",
        "driver_version": "580.126.09"}}
asked = next((w.partition("=") for w in sys.argv[1:] if w.startswith("--query")), None)
if asked is None:
    print("| NVIDIA-SMI 580.126.09   Driver Version: 580.126.09   CUDA Version: 13.0 |")
elif asked[0] == "--query-gpu":
    print(", ".join(str(rows[name]) for name in asked[2].split(",")))
else:
    print("".join(f"GPU-77, {{pid}}, sglang::scheduler, {{mib}}\\n" for pid, mib in held.items()), end="")
"""
WRAPPER = """#!/bin/sh
. {folder}/pretend.env
if [ "$1" = -m ]; then shift 2; exec {python} {tests}/tools/pretend_server.py "$@"; fi
PYTHONPATH={folder}/site exec {python} "$@"
"""
TORCH = """__version__ = "2.11.0+cu130"
class _C:
    @staticmethod
    def _cuda_getArchFlags():
        return "sm_80 sm_90 sm_100 sm_120"
uint8 = "uint8"
def empty(size, dtype, device):
    import os
    from pathlib import Path
    Path(os.environ["PRETEND_GPU"], str(os.getpid())).write_text(str(size >> 20))
class version:
    cuda = None
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    mem_get_info = staticmethod(lambda: (139 * 2**30, 140 * 2**30))
    get_device_capability = staticmethod(lambda _i: (9, 0))
    get_device_name = staticmethod(lambda _i: "NVIDIA H200")
"""
ARGS = '''"""SGLang 0.5.11 reads these flags so; the choices are those of the recorded refusal."""
import argparse

import torch

TOOL_PARSERS = {choices}


def prepare_server_args(flags):
    parser = argparse.ArgumentParser(prog="sglang serve")
    for name in ("model-path", "load-format", "host", "attention-backend", "sampling-backend", "grammar-backend"):
        parser.add_argument("--" + name, default=None)
    for name in ("port", "tp-size", "context-length", "max-running-requests"):
        parser.add_argument("--" + name, type=int, default=30000 if name == "port" else 1 if name == "tp-size" else None)
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--tool-call-parser", choices=TOOL_PARSERS)
    parser.add_argument("--disable-cuda-graph", action="store_true")
    args = parser.parse_args(flags)
    args.seen = (torch.cuda.get_device_name(0), torch.cuda.device_count(), args.model_path)
    print("cards:", *args.seen)
    args.check_server_args = lambda: None
    return args
'''
FLAGS = "--attention-backend triton --sampling-backend pytorch --grammar-backend none"
GRAPHS = f"{FLAGS} --mem-fraction-static 0.85"
"""Flags of tests/data/logs/dense8b-cg.log."""


@dataclass(frozen=True)
class Machine:
    """`python` is the serving environment's interpreter, `path` what PATH begins with."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "opt" / "python"

    @property
    def model(self) -> Path:
        return self.folder / "models" / "Qwen3-8B"

    @property
    def path(self) -> str:
        return f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def server(self, log: str, *, delay: float = 0.01, **more: str) -> None:
        """What the next launches will do; see pretend_server.py."""
        rows = {"PRETEND_LOG": str(TESTS / "data" / "logs" / log), "PRETEND_SEED": "4711", "PRETEND_DELAY": str(delay),
                "PRETEND_GPU": str(self.folder / "gpu"), **more}  # fmt: skip
        text = "".join(f"export {name}='{value}'\n" for name, value in rows.items())
        (self.folder / "pretend.env").write_text(text)

    def hold(self, pid: int, mib: int) -> None:
        """A process that exists holds memory of the card."""
        (self.folder / "gpu" / str(pid)).write_text(str(mib))

    def used_mib(self) -> int:
        """Held by living processes."""
        return sum(int(p.read_text()) for p in (self.folder / "gpu").iterdir() if Path(f"/proc/{p.name}/exe").exists())


def machine(folder: Path) -> Machine:
    made = Machine(folder)
    for name in ("bin", "opt", "gpu", "models", "site/sglang/srt/configs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    last = (TESTS / "data" / "logs" / "f-parser-typo.log").read_text().strip().splitlines()[-1]
    choices = [word.strip().strip("'") for word in last.rpartition("choose from ")[2].rstrip(")").split(",")]
    programs = {
        "bin/nvidia-smi": SMI.format(python=sys.executable, gpu=folder / "gpu", total=TOTAL_MIB, kept=KEPT_MIB),
        "opt/python": WRAPPER.format(folder=folder, python=sys.executable, tests=TESTS),
        "opt/ninja": "#!/bin/sh\n",
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755 | stat.S_IXUSR)
    (folder / "site/torch.py").write_text(TORCH)
    (folder / "site/sglang/__init__.py").write_text('__version__ = "0.5.11"\n')
    for name in ("srt/__init__", "srt/configs/__init__", "srt/configs/model_config"):
        (folder / f"site/sglang/{name}.py").write_text("")
    (folder / "site/sglang/srt/server_args.py").write_text(ARGS.format(choices=json.dumps(choices)))
    shutil.copytree(TESTS / "data" / "planner" / "models" / "qwen3-8b", made.model, dirs_exist_ok=True)
    made.server("dense8b-cg.log")
    return made
