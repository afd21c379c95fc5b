"""The tool `inspect_host`: what is on a machine and what runs there. Reads only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import Field

from opsagent_tools.errors import ToolFailed
from opsagent_tools.host import Host
from opsagent_tools.machine.containers import Container, read_containers, read_passthrough
from opsagent_tools.machine.gpus import Driver, Gpu, read_gpus
from opsagent_tools.machine.network import Listener, listeners
from opsagent_tools.machine.processes import Process, masked, read_processes
from opsagent_tools.machine.servers import Server, read_servers
from opsagent_tools.machine.system import Disk, System, read_disks, read_system
from opsagent_tools.machine.venvs import ROOTS, Venv, read_venvs
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

Part = Literal["system", "gpus", "containers", "servers", "ports", "venvs", "disks", "processes"]
PARTS: tuple[Part, ...] = ("system", "gpus", "containers", "servers", "ports", "venvs", "disks")

LISTED = 200

T = TypeVar("T")


class InspectHostArgs(Args):
    parts: list[Part] = Field(default=list(PARTS), description="What to look at; all but `processes` if left out.")
    roots: list[str] = Field(default=list(ROOTS), description="Folders in which Python environments are looked for.")
    deep: bool = Field(
        default=True, description="Ask each environment with torch which GPUs it was built for (seconds each)."
    )


class InspectHostResult(Result):
    host: str
    system: System | None = None
    driver: Driver | None = None
    gpus: list[Gpu] = []
    """Every NVIDIA card, also those that vfio-pci or no driver holds (`index` is null then)."""
    gpus_usable: int = 0
    """Cards that nvidia-smi shows."""
    gpus_on_bus: int = 0
    """Cards that are plugged in, whoever holds them."""
    containers: list[Container] = []
    passthrough: list[str] = []
    """Virtual machines that are given a card: starting one takes it away from the driver."""
    servers: list[Server] = []
    orphans: list[int] = []
    """Workers of SGLang whose server is gone; they hold GPU memory."""
    ports: list[Listener] = []
    processes: list[Process] = []
    """All but the kernel's own, secrets masked; only when `processes` is asked for."""
    venvs: list[Venv] = []
    disks: list[Disk] = []
    errors: dict[str, str] = {}
    """Parts that could not be read, and why."""


def run(host: Host, args: InspectHostArgs, ctx: Context | None = None) -> InspectHostResult:
    """Look. A part that cannot be read is named in `errors`; a host that cannot be reached raises HostError."""
    ctx = ctx or Context()
    result = InspectHostResult(host=host.name)

    def part(name: Part, read: Callable[[], T]) -> T | None:
        if name not in args.parts:
            return None
        ctx.progress(Progress(f"looking at {name}"))
        try:
            return read()
        except (ToolFailed, ValueError) as error:
            result.errors[name] = str(error)[:300]
            return None

    result.system = part("system", lambda: read_system(host))
    result.driver, result.gpus = part("gpus", lambda: read_gpus(host)) or (None, [])
    result.gpus_usable = sum(card.index is not None for card in result.gpus)
    result.gpus_on_bus = len(result.gpus)
    result.containers = part("containers", lambda: read_containers(host)) or []
    result.passthrough = part("containers", lambda: read_passthrough(host)) or []
    result.ports = part("ports", lambda: listeners(host)) or []
    result.servers, result.orphans = part("servers", lambda: _servers(host, result.ports)) or ([], [])
    capabilities = sorted({card.compute_capability for card in result.gpus if card.compute_capability})
    result.venvs = part("venvs", lambda: read_venvs(host, capabilities, args.roots, deep=args.deep)) or []
    result.processes = part("processes", lambda: _processes(host)) or []
    result.disks = part("disks", lambda: read_disks(host)) or []
    result.cause, result.summary = _cause(result), _summary(result)
    return result


def _processes(host: Host) -> list[Process]:
    shown = [p for p in read_processes(host) if p.argv and not p.argv[0].startswith("[")]
    return [p.model_copy(update={"argv": [word[:300] for word in masked(p.argv)]}) for p in shown[:LISTED]]


def _servers(host: Host, ports: list[Listener]) -> tuple[list[Server], list[int]]:
    return read_servers(host, read_processes(host), ports or listeners(host))


def _cause(result: InspectHostResult) -> str | None:
    """The first thing that would keep a server from running here; not a failure of the look itself."""
    if any(card.driver in ("vfio-pci", "nouveau") for card in result.gpus):
        return "gpu-bound-to-other-driver"
    if result.driver and result.gpus and result.driver.state != "ok":
        return result.driver.cause
    return None


def _summary(result: InspectHostResult) -> str:
    names = sorted({card.name for card in result.gpus})
    words = [f"{result.gpus_usable} of {result.gpus_on_bus} GPUs usable ({', '.join(names)})"] if result.gpus else []
    if result.driver is not None and not result.gpus:
        words.append("no NVIDIA GPU found")
    if result.driver and result.driver.version:
        words.append(f"driver {result.driver.version}")
    held = sorted({card.driver for card in result.gpus if card.index is None})
    words += [f"held by {', '.join(held)}"] if held else []
    words += [f"{s.engine} serves {s.model} on port {s.port}" for s in result.servers]
    count = len(result.containers)
    words += [f"{count} container{'s' if count > 1 else ''}"] if count else []
    return "; ".join(words) or "nothing of note"


TOOL = Tool(
    name="inspect_host",
    description=(
        "Look at a host: GPUs with their drivers, ECC and holders (also cards bound to vfio-pci), containers, running model "
        "servers with their exact commands, listening ports, Python environments and the GPUs they were built for, disks, "
        "kernel, glibc. Reads only. Name `parts` to look at less."
    ),
    args=InspectHostArgs,
    result=InspectHostResult,
    run=run,
    tier="R0",
    recovery="read_only",
)
