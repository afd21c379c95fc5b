"""nvidia-smi, nvidia-modprobe, NVIDIA's installer, lspci, lsmod, modprobe, modinfo, update-initramfs."""

from __future__ import annotations

import re
from dataclasses import replace

from opsagent_lab import modules, processes
from opsagent_lab.clock import stamp
from opsagent_lab.gpu_access import GpuAccess, Problem, access
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.programs.options import read
from opsagent_lab.state import Gpu, Node, SimProcess

_NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is "
    "installed and running.\n\n"
)
_PROBLEMS: dict[Problem, tuple[int, str]] = {
    "no-library": (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA "
                       "Display Driver is properly installed and present in your system.\n"),
    "no-module": (9, _NO_DRIVER),
    "no-control-node": (9, _NO_DRIVER),
    "denied": (255, "Failed to initialize NVML: Unknown Error\n"),
    "permission": (4, "Failed to initialize NVML: Insufficient Permissions\n"),
    "no-devices": (6, "No devices were found\n"),
}  # fmt: skip


def _smi(process: Process) -> int:
    if process.user == "root" and not process.host.parent:
        modules.make_nodes(process.world, process.host, uvm=False)
    seen = access(process.world, process.host, process.user)
    if seen.problem == "mismatch":
        process.write_out("Failed to initialize NVML: Driver/library version mismatch\n")
        process.write_out(f"NVML library version: {'.'.join(process.host.driver.user.split('.')[:2])}\n")
        return 18
    if seen.problem:
        code, words = _PROBLEMS[seen.problem]
        process.write_out(words)
        return code
    process.sleep(0.4)
    args, seen = _chosen(process, seen)
    query = next((a for a in args if a.startswith("--query")), "")
    if query.startswith("--query-gpu="):
        return _query(process, seen.gpus, query.partition("=")[2], args)
    if query.startswith("--query-compute-apps="):
        return _apps(process, seen.gpus, query.partition("=")[2], args)
    if "-L" in args:
        for i, gpu in enumerate(seen.gpus):
            process.write_out(f"GPU {i}: {gpu.name} (UUID: {gpu.uuid})\n")
        return 0
    if args and args[0] == "topo":
        link = "NV4" if all(g.p2p for g in seen.gpus) else "PHB"
        process.write_out("\t" + "\t".join(f"GPU{i}" for i in range(len(seen.gpus))) + "\n")
        for i in range(len(seen.gpus)):
            process.write_out(f"GPU{i}\t" + "\t".join(" X " if i == j else link for j in range(len(seen.gpus))) + "\n")
        return 0
    if args:
        process.write_out("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n")
        return 2
    return _table(process, seen.gpus)


_KNOWN = re.compile(r"--(query-gpu|query-compute-apps|format)=.*|-L|--list-gpus|topo|-m|--matrix")


def _chosen(process: Process, seen: GpuAccess) -> tuple[list[str], GpuAccess]:
    """The arguments without `-i N`, and the cards that it leaves. Ends with 2 for an unknown option."""
    args: list[str] = []
    todo = [part for a in process.args for part in (a.split("=", 1) if a.startswith(("--id=", "-i=")) else [a])]
    while todo:
        word = todo.pop(0)
        if word in ("-i", "--id") and todo:
            wanted = todo.pop(0).split(",")
            gpus = [g for n, g in enumerate(seen.gpus) if str(n) in wanted or g.uuid in wanted or g.pci in wanted]
            if not gpus:
                process.write_out("No devices were found\n")
                raise Exit(6)
            seen = replace(seen, gpus=gpus)
        elif _KNOWN.fullmatch(word):
            args.append("-L" if word == "--list-gpus" else word)
        else:
            process.write_out(
                "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"
                f"Option {word} is not recognized. Please run 'nvidia-smi -h'.\n\n"
            )
            raise Exit(2)
    return args, seen


def _holders(process: Process, gpu: Gpu) -> list[SimProcess]:
    """Processes that hold memory on a card; a container sees its own only, the machine all of them."""
    return [sim for sim in processes.seen(process.world, process.host) if gpu.uuid in sim.gpu_mib]


def _field(process: Process, gpus: list[Gpu], gpu: Gpu, name: str) -> str:
    used, free = process.world.gpu_used_mib(gpu), process.world.gpu_free_mib(gpu)
    busy = used > 1000
    pci = gpu.pci if len(gpu.pci.split(":")[0]) == 8 else f"0000{gpu.pci}"
    values = {
        "index": str(gpus.index(gpu)), "uuid": gpu.uuid, "gpu_uuid": gpu.uuid, "name": gpu.name, "gpu_name": gpu.name,
        "pci.bus_id": pci.upper(), "gpu_bus_id": pci.upper(), "memory.total": f"{gpu.total_mib} MiB",
        "memory.used": f"{used} MiB", "memory.free": f"{free} MiB", "memory.reserved": f"{gpu.reserved_mib} MiB",
        "compute_cap": gpu.compute_capability, "ecc.mode.current": gpu.ecc, "ecc.mode.pending": gpu.ecc,
        "driver_version": process.world.machine(process.host).driver.loaded, "count": str(len(gpus)),
        "utilization.gpu": "0 %", "temperature.gpu": "41" if busy else "33",
        "power.draw": f"{gpu.idle_power_w + 40 * busy}.00 W",
        "power.limit": f"{gpu.power_limit_w}.00 W", "pstate": "P0" if busy else "P8",
        "persistence_mode": "Enabled" if gpu.persistence else "Disabled",
        "pcie.link.gen.current": str(gpu.pcie_gen if busy else 1), "pcie.link.width.current": str(gpu.pcie_width),
        "mig.mode.current": "[N/A]", "display_active": "Disabled",
    }  # fmt: skip
    return values.get(name, "")


def _forms(args: list[str]) -> tuple[bool, bool]:
    form = next((a.partition("=")[2] for a in args if a.startswith("--format=")), "csv")
    return "noheader" not in form, "nounits" not in form


def _query(process: Process, gpus: list[Gpu], fields: str, args: list[str]) -> int:
    names = [f.strip() for f in fields.split(",")]
    for name in names:
        if gpus and not _field(process, gpus, gpus[0], name):
            process.write_out(f'Field "{name}" is not a valid field to query.\n\n')
            return 2
    head, units = _forms(args)
    if head:
        process.write_out(", ".join(f"{n} [MiB]" if n.startswith("memory.") and units else n for n in names) + "\n")
    for gpu in gpus:
        row = [_field(process, gpus, gpu, n) for n in names]
        process.write_out(", ".join(v if units else re.sub(r" (MiB|%|W)$", "", v) for v in row) + "\n")
    return 0


def _apps(process: Process, gpus: list[Gpu], fields: str, args: list[str]) -> int:
    names = [f.strip() for f in fields.split(",")]
    head, units = _forms(args)
    if head:
        process.write_out(", ".join(names) + "\n")
    for gpu in gpus:
        for sim in _holders(process, gpu):
            mib = sim.gpu_mib[gpu.uuid]
            values = {
                "gpu_uuid": gpu.uuid, "pid": str(sim.pid), "process_name": sim.title or sim.argv[0], "name": sim.title
                or sim.argv[0],
                "used_memory": f"{mib} MiB" if units else str(mib), "used_gpu_memory": f"{mib} MiB" if units else str(mib),
                "gpu_name": gpu.name, "gpu_bus_id": gpu.pci,
            }  # fmt: skip
            process.write_out(", ".join(values.get(n, "[N/A]") for n in names) + "\n")
    return 0


def _table(process: Process, gpus: list[Gpu]) -> int:
    machine = process.world.machine(process.host)
    version, cuda = process.host.driver.user, process.host.driver.cuda or machine.driver.cuda or "13.0"
    line = "+-----------------------------------------------------------------------------------------+\n"
    out = [stamp(process.now, "%a %b %d %H:%M:%S %Y") + "       \n", line]
    out.append(f"| NVIDIA-SMI {version:<23} Driver Version: {machine.driver.loaded:<14} CUDA Version: {cuda:<8} |\n")
    out.append("|-----------------------------------------+------------------------+----------------------+\n")
    out.append("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n")
    out.append("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n")
    out.append("|                                         |                        |               MIG M. |\n")
    out.append("|=========================================+========================+======================|\n")
    for i, gpu in enumerate(gpus):
        used = process.world.gpu_used_mib(gpu)
        out.append(
            f"| {i:>3}  {gpu.name:<27} {'On' if gpu.persistence else 'Off':>7} | {'0000' + gpu.pci.upper():<16} Off "
            f"| {'Off' if gpu.ecc == 'Disabled' else '0':>20} |\n"
        )
        out.append(
            f"| {gpu.fan:>3}   33C    P8 {gpu.idle_power_w:>14}W / {gpu.power_limit_w:>4}W | {used:>7}MiB / "
            f"{gpu.total_mib:>6}MiB |      0%      Default |\n"
        )
        out.append("|                                         |                        |                  N/A |\n")
        out.append("+-----------------------------------------+------------------------+----------------------+\n")
    out += ["\n", line, "| Processes:                                                                              |\n"]
    out.append("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n")
    out.append("|=========================================================================================|\n")
    holders = [(i, s, s.gpu_mib[g.uuid]) for i, g in enumerate(gpus) for s in _holders(process, g)]
    for i, sim, mib in holders:
        out.append(f"| {i:>4}   N/A  N/A {sim.pid:>16}      C   {(sim.title or sim.argv[0])[:35]:<35} {mib:>7}MiB |\n")
    if not holders:
        out.append("|  No running processes found                                                             |\n")
    process.write_out("".join(out) + line)
    return 0


def _nvidia_modprobe(process: Process) -> int:
    if process.host.parent or not process.host.driver.module:
        return 1
    if not process.host.driver.loaded and not modules.load_nvidia(process.world, process.host):
        return 1
    modules.make_nodes(process.world, process.host)
    return 0


def _installer(process: Process) -> int:
    """`sh NVIDIA-Linux-x86_64-VERSION.run`: kernel module and user space, or with --no-kernel-modules user space only."""
    found = re.search(r"x86_64-([\d.]+)\.run", process.argv[0])
    version = found.group(1).rstrip(".") if found else "580.126.09"
    host, args = process.host, process.args
    process.write_out("Verifying archive integrity... OK\n")
    process.write_out(
        f"Uncompressing NVIDIA Accelerated Graphics Driver for Linux-x86_64 {version}...........................\n"
    )
    process.sleep(15)
    user_only = any(a in args for a in ("--no-kernel-modules", "--no-kernel-module"))
    if host.parent and not user_only:
        return _error(process, "An NVIDIA kernel module 'nvidia-uvm' appears to be already loaded in your kernel.")
    if not user_only:
        if any(d.driver == "nouveau" for d in host.pci):
            return _error(
                process,
                "The Nouveau kernel driver is currently in use by your system.  This driver is incompatible with "
                "the NVIDIA driver, and must be disabled before proceeding.",
            )
        if host.driver.loaded and "--allow-installation-with-running-driver" not in args:
            return _error(
                process,
                "An NVIDIA kernel module 'nvidia-uvm' appears to be already loaded in your kernel.  This may be "
                "because it is in use (for example, by an X server, a CUDA program, or the NVIDIA Persistence Daemon).",
            )
        process.sleep(90)
        host.driver.module = version
        host.driver.flavour = "proprietary" if "--kernel-module-type=proprietary" in args else "open"
        if "--skip-module-load" not in args and not modules.load_nvidia(process.world, host):
            host.driver.module = ""
            return _error(
                process,
                "Unable to load the kernel module 'nvidia.ko'.  This happens most frequently when this kernel "
                "module was built against the wrong or improperly configured kernel sources, or if another driver, "
                "such as nouveau, is present and prevents the NVIDIA kernel module from obtaining ownership of the "
                "NVIDIA device(s).",
            )
    process.sleep(20)
    host.driver.user, host.driver.cuda = version, "13.0"
    for name in ("nvidia-smi", *(() if host.parent else ("nvidia-modprobe",))):
        process.files.put(f"/usr/bin/{name}", Node(mode=0o755, program=name))
    process.files.put("/var/log/nvidia-installer.log", Node(data=b"nvidia-installer log file\n", size=26))
    process.world.count(host, "driver_installs")
    process.write_out(f"Installation of the NVIDIA driver (version: {version}) is now complete.\n")
    return 0


def _error(process: Process, text: str) -> int:
    process.write_err(
        f"\nERROR: {text}\n\n\nERROR: Installation has failed.  Please see the file '/var/log/nvidia-installer.log' "
        f"for details.\n\n"
    )
    return 1


def _lspci(process: Process) -> int:
    options = read(process, "nkvDmtxbPQ", "ds")
    letters = "".join(letter * len(values) for letter, values in options.given.items())
    vendor, slot = options.last("d"), options.last("s")
    for device in process.world.machine(process.host).pci:
        ids = f"{device.vendor.removeprefix('0x')}:{device.device.removeprefix('0x')}"
        if vendor and not ids.startswith(vendor):
            continue
        if slot and slot not in device.address:
            continue
        address = device.address if "D" in letters else device.address.partition(":")[2]
        kind = device.class_id.removeprefix("0x")[:4]
        numbers = "nn" in letters
        name = f"{device.class_name}{f' [{kind}]' if numbers else ''}: {device.name}{f' [{ids}]' if numbers else ''}"
        process.write_out(f"{address} {name} (rev {device.revision})\n")
        if "k" in letters or "v" in letters:
            if device.subsystem:
                process.write_out(f"\tSubsystem: {device.subsystem}\n")
            if device.driver:
                process.write_out(f"\tKernel driver in use: {device.driver}\n")
            if device.modules:
                process.write_out(f"\tKernel modules: {', '.join(device.modules)}\n")
    return 0


def _lsmod(process: Process) -> int:
    process.write_out("Module                  Size  Used by\n")
    for name in process.world.machine(process.host).modules:
        process.write_out(f"{name:<20} {65536:>9}  0\n")
    return 0


def _modprobe(process: Process) -> int:
    host = process.host
    known = {
        "showconfig": "c",
        "show-config": "c",
        "remove": "r",
        "verbose": "v",
        "quiet": "q",
        "dry-run": "n",
        "first-time": "f",
    }
    options = read(process, "crvqnabfi", "", known)
    if "c" in options:
        process.write_out("".join(modules.modprobe_files(host).values()))
        return 0
    remove = "r" in options
    for name in options.operands:
        if host.parent:
            process.write_err(f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{host.kernel}\n")
            return 1
        if remove:
            host.modules = [m for m in host.modules if m != name]
        elif name.startswith("nvidia"):
            if not host.driver.module:
                process.write_err(f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{host.kernel}\n")
                return 1
            if not host.driver.loaded and not modules.load_nvidia(process.world, host):
                process.write_err(f"modprobe: ERROR: could not insert '{name}': No such device\n")
                return 1
        elif name not in host.modules:
            host.modules.append(name.replace("-", "_"))
    return 0


def _modinfo(process: Process) -> int:
    version = process.world.machine(process.host).driver.module
    if not version or process.host.parent:
        process.write_err("modinfo: ERROR: Module nvidia not found.\n")
        return 1
    process.write_out(
        f"{version}\n" if "-F" in process.args else f"filename: /lib/modules/nvidia.ko\nversion: {version}\n"
    )
    return 0


def _initramfs(process: Process) -> int:
    read(process, "ucd", "k", {})
    host = process.host
    process.write_out(f"update-initramfs: Generating /boot/initrd.img-{host.kernel}\n")
    process.sleep(25)
    host.initramfs = modules.modprobe_files(host)
    process.world.count(host, "initramfs")
    process.write_out(
        "Running hook script 'zz-proxmox-boot'..\n"
        "Re-executing '/etc/kernel/postinst.d/zz-proxmox-boot' in new private mount namespace..\n"
        "No /etc/kernel/proxmox-boot-uuids found, skipping ESP sync.\n"
    )
    return 0


PROGRAMS: Registry = {
    "nvidia-smi": _smi, "nvidia-modprobe": _nvidia_modprobe, "nvidia-installer": _installer, "lspci": _lspci,
    "lsmod": _lsmod,
    "modprobe": _modprobe, "modinfo": _modinfo, "update-initramfs": _initramfs,
}  # fmt: skip
