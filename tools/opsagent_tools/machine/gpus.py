"""GPUs of a host: what nvidia-smi sees, what is on the PCI bus, and which driver holds each card."""

from __future__ import annotations

import re

from pydantic import BaseModel

from opsagent_tools.host import Host, argv

FIELDS = "index,uuid,name,pci.bus_id,memory.total,memory.used,memory.free,compute_cap,ecc.mode.current,driver_version"
EXIT_CAUSES = {
    9: "nvidia-module-not-loaded",
    12: "driver-userspace-missing",
    18: "driver-library-mismatch",
    6: "gpu-adapter-init-failed",
}
"""nvidia-smi(1), RETURN VALUE; 18 is seen for a version mismatch."""


class Holder(BaseModel):
    """A process that holds memory of a card. In a container nvidia-smi may list none although memory is used."""

    pid: int
    name: str = ""
    used_mib: int | None = None


class Gpu(BaseModel):
    """One card. Memory in MiB as nvidia-smi gives it (total is not used + free: the driver keeps some)."""

    index: int | None = None
    """nvidia-smi's number; null for a card that the nvidia driver does not have."""
    pci: str
    """`0000:41:00.0`, lower case."""
    name: str
    driver: str = "nvidia"
    """Kernel driver in use: `nvidia`, `vfio-pci`, `nouveau` or `none`."""
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    compute_capability: str | None = None
    ecc: bool | None = None
    """With ECC on, a card with GDDR6 has 1/16 less memory. Null: the card has none, or it was not said."""
    uuid: str = ""
    holders: list[Holder] = []


class Driver(BaseModel):
    """The NVIDIA driver: the kernel's half, the user space's half, and whether they work together."""

    state: str
    """`ok`, `no-nvidia-smi`, or `failed`; then `words` has nvidia-smi's own and `cause` a slug."""
    version: str | None = None
    """As nvidia-smi reports it."""
    module: str | None = None
    """Of the loaded kernel module (/proc/driver/nvidia/version)."""
    cuda: str | None = None
    """Highest CUDA version that it supports."""
    cause: str | None = None
    words: str = ""


def read_gpus(host: Host) -> tuple[Driver, list[Gpu]]:
    """Every NVIDIA card of the host, also those that vfio-pci or no driver holds."""
    query = argv(host, "nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", timeout_s=60)
    cards = parse_query(query.stdout) if query.ok else []
    driver = _driver(host, query.exit_code, query.stdout + query.stderr, cards)
    if cards:
        apps = argv(host, "nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
                    "--format=csv,noheader,nounits", timeout_s=60)  # fmt: skip
        for card in cards:
            card.holders = parse_apps(apps.stdout).get(card.uuid, []) if apps.ok else []
    bus = argv(host, "lspci", "-Dnnk", "-d", "10de:", timeout_s=30)
    return driver, merge(cards, parse_lspci(bus.stdout) if bus.ok else [])


def _driver(host: Host, code: int, words: str, cards: list[Gpu]) -> Driver:
    module = parse_module(argv(host, "cat", "/proc/driver/nvidia/version").stdout)
    if code in (126, 127):
        return Driver(state="no-nvidia-smi", module=module, cause="driver-userspace-missing", words=words.strip()[:400])
    if code != 0 or not cards:
        cause = EXIT_CAUSES.get(code)
        if "version mismatch" in words:
            cause = "driver-library-mismatch"
        elif "Unknown Error" in words:
            cause = "lxc-device-rules-denied"
        return Driver(state="failed", module=module, cause=cause, words=words.strip()[:400])
    banner = argv(host, "nvidia-smi", timeout_s=60).stdout
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", banner)
    version = re.search(r"Driver Version:\s*([\d.]+)", banner)
    return Driver(state="ok", version=version[1] if version else module, module=module, cuda=cuda[1] if cuda else None)


def parse_module(text: str) -> str | None:
    """Version from /proc/driver/nvidia/version (`NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.09  …`)."""
    found = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", text)
    return found[1] if found else None


def parse_query(text: str) -> list[Gpu]:
    """Lines of `nvidia-smi --query-gpu=FIELDS --format=csv,noheader,nounits`."""
    cards = []
    for line in text.splitlines():
        row = [cell.strip() for cell in line.split(",")]
        if len(row) != len(FIELDS.split(",")):
            continue
        index, uuid, name, bus, total, used, free, capability, ecc, _driver = row
        cards.append(Gpu(
            index=_int(index), uuid=uuid, name=short_name(name), pci=address(bus), memory_total_mib=_int(total),
            memory_used_mib=_int(used), memory_free_mib=_int(free), ecc={"Enabled": True, "Disabled": False}.get(ecc),
            compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
        ))  # fmt: skip
    return cards


def parse_apps(text: str) -> dict[str, list[Holder]]:
    """Lines of `--query-compute-apps=gpu_uuid,pid,process_name,used_memory`, by the card's uuid."""
    found: dict[str, list[Holder]] = {}
    for line in text.splitlines():
        row = re.fullmatch(r"\s*([^,\s]+)\s*,\s*([0-9]+)\s*,(.*),([^,]*)", line)  # a program's path may hold commas
        if row:
            holder = Holder(pid=int(row[2]), name=row[3].strip(), used_mib=_int(row[4]))
            found.setdefault(row[1], []).append(holder)
    return found


def parse_lspci(text: str) -> list[Gpu]:
    """Display devices of `lspci -Dnnk -d 10de:` (audio functions of the cards are left out)."""
    cards: list[Gpu] = []
    for block in re.split(r"\n(?=\S)", text):
        head = re.match(r"(\S+) (?:VGA compatible|3D|Display) controller \[03\d\d\]: (.*)", block)
        if not head:
            continue
        name = re.sub(r"\s*\(rev [0-9a-f]+\)|\s*\[10de:[0-9a-f]{4}\]", "", head[2]).replace("NVIDIA Corporation ", "")
        pretty = re.search(r"\[([^\]]+)\]", name)
        used = re.search(r"Kernel driver in use: (\S+)", block)
        cards.append(Gpu(pci=address(head[1]), name=pretty[1] if pretty else name, driver=used[1] if used else "none"))
    return cards


def merge(seen: list[Gpu], on_bus: list[Gpu]) -> list[Gpu]:
    """Cards of nvidia-smi, then those that are only on the bus (another driver has them, or none)."""
    known = {card.pci for card in seen}
    return seen + [card.model_copy(update={"index": None}) for card in on_bus if card.pci not in known]


def address(text: str) -> str:
    """`00000000:41:00.0` and `41:00.0` as `0000:41:00.0`."""
    found = re.search(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", text)
    return f"{(found[1] or '0000')[-4:]}:{found[2]}".lower() if found else text.lower()


def short_name(name: str) -> str:
    """Without the maker: `NVIDIA RTX A6000` is `RTX A6000`."""
    return re.sub(r"^NVIDIA ", "", name)


def used_mib(host: Host) -> dict[int, int] | None:
    """Used memory by card number, MiB; null when nvidia-smi does not answer."""
    done = argv(host, "nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits", timeout_s=60)
    if not done.ok:
        return None
    pairs = (re.fullmatch(r"\s*([0-9]+)\s*,\s*([0-9]+)\s*", line) for line in done.stdout.splitlines())
    return {int(pair[1]): int(pair[2]) for pair in pairs if pair}


def _int(text: str) -> int | None:
    cell = text.strip()
    return int(cell) if re.fullmatch(r"[0-9]+", cell) else None
