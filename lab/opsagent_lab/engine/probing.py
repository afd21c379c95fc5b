"""Answers to the scripts that opsagent sends to a target, from the simulated state, in the shapes of their docstrings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opsagent_lab.engine.probe_download import probe_download
from opsagent_lab.engine.probe_env import probe_venv, probe_venvs
from opsagent_lab.engine.probe_facts import probe_facts
from opsagent_lab.engine.probe_files import probe_file
from opsagent_lab.engine.probe_job import probe_job
from opsagent_lab.engine.probe_lock import probe_lock
from opsagent_lab.engine.probe_model import probe_model_files
from opsagent_lab.engine.probe_net import probe_net, probe_procs, probe_together
from opsagent_lab.engine.probe_preflight import probe_preflight
from opsagent_lab.program import Process

Probe = Callable[[Process, dict[str, Any]], dict[str, Any]]


class ProbeError(Exception):
    """The script ends with a traceback instead of an answer."""

    def __init__(self, words: str, code: int = 1) -> None:
        super().__init__(words)
        self.code = code


PROBES: dict[str, Probe] = {
    "download": probe_download,
    "facts": probe_facts,
    "file": probe_file,
    "job": probe_job,
    "lock": probe_lock,
    "model_files": probe_model_files,
    "net": probe_net,
    "preflight": probe_preflight,
    "procs": probe_procs,
    "together": probe_together,
    "venv": probe_venv,
    "venvs": probe_venvs,
}
