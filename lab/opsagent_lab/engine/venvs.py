"""Which Python environment a program runs in, and what is installed there."""

from __future__ import annotations

import posixpath
import re

from opsagent_lab.program import Process
from opsagent_lab.state import SimHost, Venv

SYSTEM = Venv(python="3.11.2")


def name_of(package: str) -> str:
    """The normalised name of a distribution."""
    return re.sub(r"[-_.]+", "-", package).lower()


def prefix_of(path: str) -> str:
    """`/opt/sglang/bin/python3` → `/opt/sglang`; a system interpreter gives `/usr`."""
    return posixpath.dirname(posixpath.dirname(posixpath.normpath(path)))


def at(host: SimHost, path: str) -> tuple[str, Venv]:
    """(prefix, environment) of an executable's path."""
    prefix = prefix_of(path)
    return prefix, host.venvs.get(prefix, SYSTEM)


def of(process: Process) -> tuple[str, Venv]:
    """The environment that the running program belongs to."""
    return at(process.host, str(process.sim.memo.get("path") or process.argv[0]))


def site(prefix: str, venv: Venv) -> str:
    short = ".".join(venv.python.split(".")[:2])
    return f"{prefix}/lib/python{short}/site-packages"


def std(venv: Venv) -> str:
    return f"/usr/lib/python{'.'.join(venv.python.split('.')[:2])}"


def version(venv: Venv, package: str) -> str:
    """Installed version, '' when it is not there."""
    return venv.packages.get(name_of(package), "")


def kernel_archs(venv: Venv) -> tuple[str, ...]:
    """What the prebuilt SGLang kernels were built for; empty when it does not matter."""
    return tuple(venv.notes.get("kernel_archs", "").split())
