"""The command line and environment of a server."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from opsagent_tools.arg_types import option

SYSTEM_PATH = "/usr/local/cuda/bin:/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EVERYWHERE = ("0.0.0.0", "::", "[::]")


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """What will be run. `argv` may hold an API key: show it only masked."""

    argv: tuple[str, ...]
    env: dict[str, str]
    port: int
    bind: str
    """Address on which it will listen; SGLang's default is 127.0.0.1."""
    api_key: str

    @property
    def local_url(self) -> str:
        """Its address as the host itself reaches it."""
        address = "127.0.0.1" if self.bind in EVERYWHERE else self.bind
        return f"http://{f'[{address}]' if ':' in address else address}:{self.port}"


def build(
    python: str, model: str, flags: list[str], *, port: int, bind: str = "", load_format: str = "auto",
    env: dict[str, str] | None = None,
) -> ServerCommand:  # fmt: skip
    """The command for `python -m sglang.launch_server`. What `flags` already say is not said twice."""
    words = [python, "-m", "sglang.launch_server", "--model-path", model, *flags]
    said_port, said_bind = option(flags, "--port"), option(flags, "--host")
    if said_port is None:
        words += ["--port", str(port)]
    if bind and said_bind is None:
        words += ["--host", bind]
    if load_format != "auto" and option(flags, "--load-format") is None:
        words += ["--load-format", load_format]
    # ninja and nvcc are looked for by name when a kernel is compiled: the environment's own folder must be on PATH
    path = f"{posixpath.dirname(python)}:{SYSTEM_PATH}" if python.startswith("/") else SYSTEM_PATH
    final_port = int(said_port) if said_port and said_port.isdigit() else port
    return ServerCommand(
        tuple(words), {"PATH": path, **(env or {})}, final_port, said_bind or bind or "127.0.0.1",
        option(flags, "--api-key") or "",
    )  # fmt: skip
