"""`uv`, `pip` and `python -m venv`: environments that appear, with the versions that the real resolver would pick."""

from __future__ import annotations

from opsagent_lab.program import Process, Registry


def pip_module(process: Process, args: list[str]) -> int:
    raise NotImplementedError


def make_venv(process: Process, args: list[str]) -> int:
    raise NotImplementedError


PROGRAMS: Registry = {}
