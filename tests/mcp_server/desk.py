"""`opsagent mcp` in front of simulated hosts behind SSH: as a client starts it (a process, over stdio), or in this process.

Starting the process costs two seconds of imports, so what is not about the process is tested without one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult

from opsagent.verify import verify
from opsagent_lab.lab import Lab

T = TypeVar("T")
MAIN = "from opsagent.cli import main; main()"


@dataclass
class Desk:
    """One user's machine: its state folder, its hosts.toml, and how the programs are started there."""

    home: Path
    lab: Lab
    host: str = "gpu3"
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"), **self.extra}
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), **own}

    def server(self, *words: str) -> StdioServerParameters:
        args = ["-c", MAIN, "mcp", *(words or ("--hosts", str(self.home / "hosts.toml"), "--host", self.host))]
        return StdioServerParameters(command=sys.executable, args=args, env=self.env, cwd=self.home)

    def talk(self, what: Callable[[Client], Awaitable[T]], *words: str, mode: str = "auto") -> T:
        """Start a server, speak to it, let it end."""

        async def go() -> T:
            async with Client(self.server(*words), mode=mode, read_timeout_seconds=120) as client:
                return await what(client)

        return asyncio.run(go())

    def talk_here(self, what: Callable[[Client], Awaitable[T]], **given: Any) -> T:
        """The same server in this process: everything but stdio. The caller has set the environment."""
        from opsagent.cli.mcp import session_for
        from opsagent.mcp_server.server import build

        if not given.get("resume") and self.host:
            session = session_for((self.host,), str(self.home / "hosts.toml"), **given)
        else:
            session = session_for(**given)
        if session.resume:
            session.open()

        async def go() -> T:
            async with Client(build(session)) as client:
                return await what(client)

        try:
            return asyncio.run(go())
        finally:
            session.close()

    def opsagent(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command line in another terminal."""
        return subprocess.run(
            [sys.executable, "-c", MAIN, *words], capture_output=True, text=True, timeout=120, cwd=self.home,
            env=self.env, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def run_folder(self) -> Path:
        """The only run there is."""
        (folder,) = (self.home / "opsagent" / "runs").iterdir()
        return folder

    def events(self, folder: Path | None = None) -> list[dict[str, Any]]:
        text = ((folder or self.run_folder()) / "events.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def everything(self) -> str:
        """All that was written to disk, as one text."""
        files = [path for path in (self.home / "opsagent").rglob("*") if path.is_file()]
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)

    def intact(self, folder: Path | None = None) -> bool:
        """Whether the journal, its blobs, the order of effects and the report are as they should be."""
        found = verify(folder or self.run_folder())
        assert found.findings == []
        return found.ok

    def file(self, path: str) -> str | None:
        """A file of the simulated host, as its own world sees it."""
        with self.lab.world.lock:
            files = self.lab.world.files(self.lab.world.hosts[self.host])
            return files.text(path) if files.exists(path) else None

    def put(self, path: str, text: str) -> None:
        with self.lab.world.lock:
            self.lab.world.files(self.lab.world.hosts[self.host]).write(path, text)


def text_of(result: CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if part.type == "text")


def body_of(result: CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content
