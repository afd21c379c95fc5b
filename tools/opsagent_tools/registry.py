"""The tools by name. Each module is imported when its tool is first asked for."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

from opsagent_tools.tool import Tool

NAMES = (
    "ssh_exec", "read_config", "estimate_vram", "preflight", "launch_sglang", "curl_test", "tail_log", "inspect_host",
    "download_model", "install_env", "run_job", "reboot_host", "write_file", "write_sysfs", "stop_server",
)  # fmt: skip
"""Every tool that acts on a host, in the order in which they are shown; module and tool have the same name."""


class Tools(Mapping[str, Tool[Any, Any]]):
    """A mapping from name to Tool. Reading an entry imports its module; listing names imports nothing."""

    def __getitem__(self, name: str) -> Tool[Any, Any]:
        if name not in NAMES:
            raise KeyError(name)
        tool = importlib.import_module(f"opsagent_tools.{name}").TOOL
        assert isinstance(tool, Tool)
        return tool

    def __iter__(self) -> Iterator[str]:
        return (name for name in NAMES if importlib.util.find_spec(f"opsagent_tools.{name}"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


TOOLS = Tools()
