"""What a simulated host is made of: plain data, so that it can be saved, restored and compared. No behaviour here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

GIB = 2**30
MIB = 2**20

NodeKind = Literal["file", "dir", "link", "char"]


@dataclass(slots=True)
class Node:
    """One entry of a file tree. A big file keeps only its beginning in `data`; the rest of `size` bytes reads as zeros."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    kind: NodeKind = "file"
    mode: int = 0o644
    mtime: float = 0.0
    data: bytes = b""
    size: int = 0
    sha256: str = ""
    """Of the whole content, for files of which only the beginning is kept; '' means: computed from `data`."""
    target: str = ""
    """Of a symbolic link."""
    device: tuple[int, int] = (0, 0)
    """Major and minor of a character device."""
    program: str = ""
    """Name of the program that an executable file runs (a key of the registry)."""
    allocated: int | None = None
    """Bytes on disk when they differ from `size` (sparse, preallocated)."""
    owner: str = "root"
    notes: dict[str, str] = field(default_factory=dict)
    """What a program wants to remember about a file that it made (say, the model of a shard)."""


@dataclass(slots=True)
class PciDevice:
    """One PCI function and the driver that holds it ('' for none)."""

    address: str
    """With its domain: `0000:41:00.0`."""
    vendor: str
    device: str
    class_id: str
    """`0x030000` for a VGA controller, `0x030200` for a 3D controller, `0x040300` for audio."""
    class_name: str
    name: str
    """What lspci prints after the class: `NVIDIA Corporation GA102GL [RTX A6000]`."""
    revision: str = "a1"
    subsystem: str = ""
    driver: str = ""
    override: str = ""
    modules: list[str] = field(default_factory=list)
    """Kernel modules that could drive it, as lspci lists them."""
    iommu_group: int = 0


@dataclass(slots=True)
class Gpu:
    """One card. Memory is in MiB (2**20 bytes); what processes hold is kept with the processes."""

    index: int
    name: str
    uuid: str
    pci: str
    total_mib: int
    reserved_mib: int = 0
    """Kept by the driver: total = reserved + used + free."""
    idle_used_mib: int = 2
    context_mib: int = 0
    """What one rank's CUDA context and collectives take before weights are loaded."""
    compute_capability: str = "8.6"
    sm: str = "sm_86"
    power_limit_w: int = 300
    idle_power_w: int = 25
    fan: str = "30%"
    ecc: str = "Disabled"
    """`Enabled`, `Disabled` or `[N/A]`."""
    persistence: bool = False
    pcie_gen: int = 4
    pcie_width: int = 16
    p2p: bool = True
    """False: peer-to-peer copies hang (no NVLink, IOMMU in the way)."""


@dataclass(slots=True)
class Driver:
    """The NVIDIA driver of a machine (kernel side) or of a container (user space only). '' = not there."""

    module: str = ""
    """Version of the module that is installed on disk."""
    loaded: str = ""
    """Version of the module that is loaded now."""
    user: str = ""
    """Version of libnvidia-ml and nvidia-smi."""
    cuda: str = ""
    """The CUDA version that nvidia-smi prints."""
    flavour: Literal["open", "proprietary"] = "open"


@dataclass(slots=True)
class SimProcess:
    """One process of a host. A running program adds its thread elsewhere; this is what `ps` and /proc show."""

    pid: int
    ppid: int
    argv: list[str]
    started: float
    """Simulated epoch seconds."""
    title: str = ""
    """What setproctitle set; '' shows argv."""
    pgid: int = 0
    sid: int = 0
    user: str = "root"
    cgroup: str = "/system.slice/ssh.service"
    unit: str = ""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = "/root"
    state: str = "S"
    gpu_mib: dict[str, int] = field(default_factory=dict)
    """GPU uuid → MiB held."""
    ports: list[tuple[str, int]] = field(default_factory=list)
    """Listening (address, port)."""
    rss_mib: int = 12
    stubborn: bool = False
    """Ignores SIGTERM."""
    program: str = ""
    """Registry name; a process that only exists in the scenario has ''."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What the program needs to go on after the lab itself was restarted (JSON values only)."""
    log: str = ""
    """Where stdout and stderr of a background process go: a path of the host, or '' for the journal."""
    exit_code: int | None = None


@dataclass(slots=True)
class Unit:
    """A systemd service."""

    name: str
    """With its suffix: `sglang.service`."""
    description: str = ""
    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    main_pid: int = 0
    exec_main_pid: int = 0
    exec_main_code: int = 0
    """0 none, 1 exited, 2 killed, 3 dumped (waitid's si_code)."""
    exec_main_status: int = 0
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = "/"
    properties: dict[str, str] = field(default_factory=dict)
    """As given: `Restart`, `KillMode`, `StandardOutput` …"""
    transient: bool = False
    enabled: bool = False
    restarts: int = 0
    invocation: str = ""
    started: float = 0.0
    ended: float = 0.0
    load: str = "loaded"
    stop_requested: bool = False


@dataclass(slots=True)
class JournalLine:
    """One line of the systemd journal."""

    time: float
    ident: str
    pid: int
    text: str
    unit: str = ""


@dataclass(slots=True)
class Disk:
    """A mounted file system. `base_used` is what is on it besides the files we know."""

    mount: str
    size: int
    device: str = "/dev/mapper/pve-root"
    fstype: str = "ext4"
    base_used: int = 0


@dataclass(slots=True)
class Venv:
    """A Python environment. `packages` maps a normalised name to its version."""

    python: str
    """Version of the interpreter, `3.12.3`."""
    packages: dict[str, str] = field(default_factory=dict)
    arch_list: list[str] = field(default_factory=list)
    """What torch.cuda.get_arch_list() says of the torch in it."""
    cuda: str = ""
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SimHost:
    """One machine or container. `name` is the configured name (`kpro5/ct129`), `parent` the machine it runs on."""

    name: str
    hostname: str
    parent: str = ""
    ctid: int = 0
    on: bool = True
    addresses: list[str] = field(default_factory=list)
    boot_id: str = ""
    booted: float = 0.0
    os_name: str = "Debian GNU/Linux 12 (bookworm)"
    os_id: str = "debian"
    os_version: str = "12"
    glibc: str = "2.36"
    kernel: str = "6.8.12-4-pve"
    machine_id: str = ""
    cpus: int = 32
    cpu_model: str = "AMD EPYC 7302 16-Core Processor"
    memory_mib: int = 131072
    pve: str = ""
    """Version of Proxmox VE, '' elsewhere."""
    systemd: bool = True
    nodes: dict[str, Node] = field(default_factory=dict)
    pci: list[PciDevice] = field(default_factory=list)
    gpus: list[Gpu] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    """Loaded kernel modules, oldest first."""
    initramfs: dict[str, str] = field(default_factory=dict)
    """The modprobe.d files as they were when the initramfs was last built: what counts at the next boot."""
    driver: Driver = field(default_factory=Driver)
    uvm_major: int = 509
    processes: dict[int, SimProcess] = field(default_factory=dict)
    next_pid: int = 1200
    units: dict[str, Unit] = field(default_factory=dict)
    journal: list[JournalLine] = field(default_factory=list)
    dmesg: list[tuple[float, str]] = field(default_factory=list)
    """(seconds since boot, text)."""
    disks: list[Disk] = field(default_factory=list)
    venvs: dict[str, Venv] = field(default_factory=dict)
    """Prefix (`/opt/sglang`) → environment."""
    packages: dict[str, str] = field(default_factory=dict)
    """Debian packages."""
    devices: dict[str, str] = field(default_factory=dict)
    """Of a running container: device nodes that its start passed through → `ok` or `denied` (cgroup says no)."""
    lock: str = ""
    """Of a container: `backup` … as `pct` shows it."""
    extras: dict[str, Any] = field(default_factory=dict)
    """State of programs that keep more (JSON values only)."""
    counters: dict[str, int] = field(default_factory=dict)
    """How often things with an effect happened, by name: what a test of "nothing twice" looks at."""
