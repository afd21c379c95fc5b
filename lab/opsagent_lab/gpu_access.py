"""Which GPUs a program sees on a host or in a container, and what stands in the way (for nvidia-smi and torch alike)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from opsagent_lab.state import Gpu, SimHost

if TYPE_CHECKING:
    from opsagent_lab.world import World

Problem = Literal["", "no-library", "no-module", "mismatch", "no-control-node", "denied", "permission", "no-devices"]


@dataclass(frozen=True, slots=True)
class GpuAccess:
    """`problem` is what NVML meets first; `cuda_problem` what CUDA meets although NVML works ('' when it works)."""

    gpus: list[Gpu] = field(default_factory=list)
    problem: Problem = ""
    cuda_problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and bool(self.gpus)


def bound(machine: SimHost) -> list[Gpu]:
    """Cards of a machine that its loaded nvidia module holds, in PCI order."""
    drivers = {device.address: device.driver for device in machine.pci}
    return [gpu for gpu in machine.gpus if drivers.get(gpu.pci) == "nvidia"] if machine.driver.loaded else []


def access(world: World, host: SimHost, user: str = "root") -> GpuAccess:
    """What a program of this host sees. Indices of the cards are renumbered by position in `gpus`, as NVML does."""
    machine = world.machine(host)
    if not host.driver.user:
        return GpuAccess(problem="no-library")
    if not machine.driver.loaded:
        return GpuAccess(problem="no-module")
    files = world.files(host)
    if files.find("/dev/nvidiactl") is None:
        return GpuAccess(problem="no-control-node")
    if host.parent and host.devices.get("/dev/nvidiactl", "denied") == "denied":
        return GpuAccess(problem="denied")
    control = files.get("/dev/nvidiactl")
    if user != "root" and not control.mode & 0o006:
        return GpuAccess(problem="permission")
    if host.driver.user != machine.driver.loaded:
        return GpuAccess(problem="mismatch")
    gpus = [gpu for gpu in bound(machine) if _node(world, host, f"/dev/nvidia{minor(machine, gpu)}")]
    if not gpus:
        return GpuAccess(problem="no-devices")
    uvm = files.find("/dev/nvidia-uvm")
    if uvm is None or not _node(world, host, "/dev/nvidia-uvm") or uvm.device[0] != machine.uvm_major:
        return GpuAccess(gpus, cuda_problem="CUDA unknown error")
    return GpuAccess(gpus)


def minor(machine: SimHost, gpu: Gpu) -> int:
    """The N of /dev/nvidiaN: position among the cards that the driver holds."""
    return bound(machine).index(gpu)


def _node(world: World, host: SimHost, path: str) -> bool:
    """Whether a device node is there and may be opened."""
    there = world.files(host).find(path) is not None
    return there and (not host.parent or host.devices.get(path, "denied") != "denied")
