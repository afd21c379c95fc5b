"""The machine itself: kernel, distribution, C library, memory, disks, init."""

from __future__ import annotations

import re

from pydantic import BaseModel

from opsagent_tools.host import Host, argv

REAL = ("tmpfs", "devtmpfs", "overlay", "squashfs", "efivarfs", "udev", "none", "proc", "sysfs")


class Disk(BaseModel):
    """A mounted file system. Bytes."""

    mount: str
    source: str
    size: int
    free: int


class System(BaseModel):
    """Facts that rarely change. `glibc` decides which wheels can be installed (SGLang ≥ 0.5.11: 2.34)."""

    hostname: str = ""
    kernel: str = ""
    os: str = ""
    glibc: str | None = None
    boot_id: str = ""
    systemd: bool = False
    """Whether systemd is PID 1: then jobs are units, else detached groups."""
    container: str = ""
    """`lxc`, `docker`, … when this is itself a container."""
    memory_total_mib: int | None = None
    memory_available_mib: int | None = None
    cpus: int | None = None
    python: str | None = None
    uv: str | None = None


def read_system(host: Host) -> System:
    """A dozen small reads."""
    boot_id = _line(host, "cat", "/proc/sys/kernel/random/boot_id")
    found = System(kernel=_line(host, "uname", "-r"), hostname=_line(host, "uname", "-n"), boot_id=boot_id)
    release = argv(host, "cat", "/etc/os-release").stdout
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]*)', release, re.M)
    found.os = pretty[1] if pretty else ""
    libc = re.search(r"(\d+\.\d+)", _line(host, "getconf", "GNU_LIBC_VERSION"))
    found.glibc = libc[1] if libc else None
    found.systemd = _line(host, "ps", "-o", "comm=", "-p", "1") == "systemd"
    found.container = parse_container(argv(host, "cat", "/proc/1/environ").stdout)
    memory = argv(host, "cat", "/proc/meminfo").stdout
    found.memory_total_mib, found.memory_available_mib = _meminfo(memory, "MemTotal"), _meminfo(memory, "MemAvailable")
    cpus = _line(host, "getconf", "_NPROCESSORS_ONLN")
    found.cpus = int(cpus) if cpus.isdigit() else None
    for name, words in (("python", ("python3", "--version")), ("uv", ("uv", "--version"))):
        version = re.search(r"(\d+\.\d+[^\s]*)", _line(host, *words))
        setattr(found, name, version[1] if version else None)
    return found


def _line(host: Host, *words: str) -> str:
    done = argv(host, *words, timeout_s=20)
    return (done.stdout.strip().splitlines() or [""])[0] if done.ok else ""


def parse_container(environ: str) -> str:
    """`container=lxc` of PID 1's environment."""
    found = re.search(r"(?:^|\0)container=([^\0\n]*)", environ)
    return found[1] if found else ""


def _meminfo(text: str, key: str) -> int | None:
    found = re.search(rf"^{key}:\s+(\d+) kB", text, re.M)
    return int(found[1]) // 1024 if found else None


def read_disks(host: Host) -> list[Disk]:
    """Mounted file systems that hold files, as `df` sees them."""
    done = argv(host, "df", "-P", "-B1", timeout_s=30)
    return parse_df(done.stdout)


def parse_df(text: str) -> list[Disk]:
    """`df -P -B1`: Filesystem, blocks, used, available, capacity, mount point (which may hold spaces)."""
    found = []
    for line in text.splitlines()[1:]:
        words = line.split(None, 5)
        if len(words) == 6 and re.fullmatch(r"[0-9]+ [0-9]+", f"{words[1]} {words[3]}"):
            if words[0] in REAL and words[5] not in ("/", "/dev/shm"):
                continue
            found.append(Disk(mount=words[5], source=words[0], size=int(words[1]), free=int(words[3])))
    return found
