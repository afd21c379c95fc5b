"""Checks before a run: this machine, the configured hosts, the LLM's endpoint. Each check says what to do if it fails."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from opsagent_tools.errors import ExitCode, OpsError

if TYPE_CHECKING:
    from opsagent.models.select import Choice

NEEDED = ("openai", "pydantic", "fabric", "paramiko", "rich", "huggingface_hub", "click", "PyYAML", "asyncssh")
LEAST_FREE = 512 * 2**20
"""Bytes that a run's outputs may take; less free space is worth a word."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `ok` None: nothing wrong, but worth knowing."""

    area: Literal["machine", "host", "llm"]
    name: str
    ok: bool | None
    detail: str
    hint: str = ""
    exit_code: ExitCode = ExitCode.INVALID
    """What a failure means for the exit status."""


def failed(area: Literal["machine", "host", "llm"], name: str, error: OpsError) -> Check:
    return Check(area, name, False, error.what, error.hint, error.exit_code)


# --- this machine --------------------------------------------------------------------------------------------------


def machine(root: Path, env: Mapping[str, str]) -> Iterator[Check]:
    """Python, packages, the folder of runs, SSH's files."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Check("machine", "python", sys.version_info >= (3, 11), version, "opsagent needs Python 3.11 or newer")
    yield _packages()
    yield _folder(root)
    known = Path.home() / ".ssh" / "known_hosts"
    hint = "connect once with ssh, and compare the key: unknown hosts are refused"
    yield Check(
        "machine", "known_hosts", True if known.is_file() else None, str(known), "" if known.is_file() else hint
    )
    agent = env.get("SSH_AUTH_SOCK", "")
    keys = [path.name for path in (Path.home() / ".ssh").glob("id_*") if path.suffix != ".pub"]
    detail = ("an agent runs; " if agent else "no agent; ") + (
        f"keys: {', '.join(sorted(keys))}" if keys else "no keys"
    )
    yield Check("machine", "ssh keys", True if agent or keys else None, detail, "" if agent or keys else "ssh-keygen")


def _packages() -> Check:
    found, missing = [], []
    for name in NEEDED:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("machine", "packages", False, f"missing: {', '.join(missing)}", "install opsagent again with pip")
    return Check("machine", "packages", True, ", ".join(found))


def _folder(root: Path) -> Check:
    """Whether a run could be journaled: write, flush, space."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(root).free
    except OSError as error:
        hint = "set XDG_STATE_HOME to a folder that can be written"
        return Check("machine", "runs folder", False, f"{root}: {error.strerror}", hint)
    small = free < LEAST_FREE
    detail = f"{root}, {free / 2**30:.1f} GiB free"
    return Check(
        "machine", "runs folder", None if small else True, detail, "little space: remove old runs" if small else ""
    )


# --- hosts ---------------------------------------------------------------------------------------------------------


def host(name: str, open_host: Callable[[], Any]) -> Iterator[Check]:
    """Connect, say what it is, and look for GPUs. A host without a driver is worth knowing, not wrong."""
    from opsagent.transcript import one_line
    from opsagent_tools.host import argv

    try:
        machine_host = open_host()
        done = argv(machine_host, "uname", "-srm", timeout_s=20.0)
    except OpsError as error:
        yield failed("host", name, error)
        return
    yield Check("host", name, done.ok, one_line(done.stdout or done.stderr))
    query = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    try:
        cards = argv(machine_host, *query, timeout_s=30.0)
    except OpsError as error:
        yield failed("host", f"{name} GPUs", error)
        return
    if cards.ok:
        rows = [one_line(row) for row in cards.stdout.splitlines() if row.strip()]
        yield Check("host", f"{name} GPUs", True, "; ".join(rows))
    else:
        why = one_line(cards.stderr or cards.stdout) or "nvidia-smi does not answer"
        yield Check("host", f"{name} GPUs", None, why, "no driver yet, or no GPU: runbooks/migrate.md installs one")


# --- the LLM -------------------------------------------------------------------------------------------------------

PING = {
    "type": "function",
    "function": {
        "name": "ping",
        "description": "Answer the operator's ping.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
ASK = [
    {"role": "system", "content": "You test a tool-call interface. Use the tool that you are given."},
    {"role": "user", "content": 'Call the tool ping with the word "pong".'},
]


def llm(choice: Choice) -> Iterator[Check]:
    """Ask for one tool call, streamed and whole, and say what the endpoint can do."""
    from opsagent.models.openai_chat import Endpoint, OpenAIChat
    from opsagent.models.retry import RetryPolicy

    for stream in (True, False):
        name = "streamed tool call" if stream else "whole tool call"
        learned: list[str] = []

        def note(_type: str, learned: list[str] = learned, **data: Any) -> None:
            learned.append(str(data.get("why") or data.get("what") or ""))

        endpoint = Endpoint(choice.name, choice.base_url, choice.api_key, first_s=120.0, stream=stream)
        client = OpenAIChat(endpoint, emit=note, policy=RetryPolicy(attempts=2))
        try:
            reply = client.next(ASK, [PING])
        except OpsError as error:
            yield failed("llm", name, error)
            if error.exit_code in (ExitCode.INVALID, ExitCode.TRANSIENT):
                return
            continue
        made = [call for call in reply.calls if call.name == "ping"]
        notes = [*learned, *reply.notes]
        detail = f"{len(made)} call" + (f"; tolerated: {', '.join(notes)}" if notes else "")
        hint = "" if made else "start the server with a tool-call parser that fits the model"
        yield Check("llm", name, bool(made), detail, hint, ExitCode.MODEL_UNUSABLE)
