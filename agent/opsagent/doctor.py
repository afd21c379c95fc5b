"""Checks before a run: the hosts and the LLM's endpoint (this machine: doctor_machine.py). Each check says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from opsagent_tools.errors import ExitCode, OpsError

if TYPE_CHECKING:
    from opsagent.models.select import Choice


LEAST_PYTHON = (3, 8)
"""Of a host."""


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
    detail = error.what if error.where in ("", name) else f"{error.where}: {error.what}"
    return Check(area, name, False, detail, error.hint, error.exit_code)


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
    yield _python(name, machine_host)
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


def _python(name: str, machine_host: Any) -> Check:
    """What jobs, probes and file tools run in."""
    from opsagent.transcript import one_line
    from opsagent_tools.host import argv

    try:
        said = argv(machine_host, "python3", "--version", timeout_s=20.0)
    except OpsError as error:
        return failed("host", f"{name} python3", error)
    words = one_line(said.stdout or said.stderr)
    found = re.match(r"Python (\d+)\.(\d+)", words)
    fine = said.ok and found is not None and (int(found[1]), int(found[2])) >= LEAST_PYTHON
    hint = "" if fine else "install python3, 3.8 or newer: jobs, files and probes need it"
    return Check("host", f"{name} python3", fine, words, hint)


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
