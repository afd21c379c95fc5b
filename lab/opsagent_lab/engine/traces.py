"""Tracebacks of SGLang 0.5.11, as its logs have them; `data/traces/` holds one file per place where a launch ends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

ADVICE = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
    "3. disable torch compile by not using --enable-torch-compile\n"
    "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose "
)
"""Printed after every failed capture, whatever the inner error was."""


@cache
def _text(name: str) -> str:
    return (files("opsagent_lab.engine") / "data" / "traces" / f"{name}.txt").read_text(encoding="utf-8")


def trace(name: str, *, site: str, std: str, kind: str, message: str, fill: Mapping[str, str] | None = None) -> str:
    """A whole traceback with its exception line, ending in a newline."""
    text = _text(name).replace("{site}", site).replace("{std}", std)
    for key, value in (fill or {}).items():
        text = text.replace("{" + key + "}", value)
    return f"{text}{kind}: {message}\n" if message else f"{text}{kind}\n"
