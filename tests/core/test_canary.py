"""Canaries in every place where a secret can come from: none in the run folder, in a request, on the screen."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from click.testing import CliRunner
from loop.world import TOOLS, AddArgs, Count, CounterHost
from replay.record import record
from wire.server import USAGE, WireServer, call, delta, says, stream

from opsagent.cli.show import command as show
from opsagent.models.openai_chat import Endpoint, OpenAIChat
from opsagent.redact import Redactor
from opsagent.replay.recording import Recording
from opsagent.replay.run import replay
from opsagent_tools.errors import ToolFailed
from opsagent_tools.tool import Context, Tool

KNOWN = "canary-Known-0123456789"
CANARIES = {
    "env": "canaryEnvironment1",
    "header": "canaryHeader22",
    "url": "canaryUrl333",
    "ps": "canaryPs4444",
    "hf": "hf_canaryHubToken55555",
}
PRINTED = (
    f"HF_TOKEN={CANARIES['hf']}\nSERVER_API_KEY={CANARIES['env']}\nAuthorization: Bearer {CANARIES['header']}\n"
    f"GET https://u:{CANARIES['url']}@host/x\nroot 1 python -m sglang.launch_server --api-key {CANARIES['ps']} --tp 2\n"
    f"plain {KNOWN} and {base64.b64encode(KNOWN.encode()).decode()}\n"
)


def leaky(host: CounterHost, args: AddArgs, ctx: Context) -> Count:
    """Prints everything; the second time it fails with it."""
    host.value += args.by
    ctx.keep("log", (PRINTED[:40] + PRINTED[40:]).encode())
    if host.value > 2:
        raise ToolFailed(PRINTED, hint=PRINTED)
    return Count(value=host.value, summary=PRINTED)


STEP = """
    ## Raise {#raise}

    ```call
    tool: add
    args: {by: 2}
    as: added
    ```
    ```check
    - added.value == goal
    ```
"""


def test_no_canary_survives(tmp_path: Path) -> None:
    add = {"by": 2, "host": "box", "as": "added", "flags": ["--api-key", CANARIES["ps"]]}
    made = [call(json.dumps(add), name="add", id="a", index=0)]
    script = [
        stream(delta(tool_calls=made), delta("tool_calls"), USAGE),
        stream(delta(tool_calls=made), delta("tool_calls"), USAGE),
        says(f"I saw {KNOWN}"),
        says("and stop"),
    ]
    tools = {**TOOLS, "add": Tool("add", "Leaks.", AddArgs, Count, leaky)}
    with WireServer(script) as server:
        model = OpenAIChat(Endpoint("m", server.url))
        record(tmp_path, STEP, model=model, redactor=Redactor({"KNOWN": KNOWN}), tools=tools)
        assert len(server.requests) >= 3
        seen = {"requests": json.dumps(server.requests[1:])}
    for path in tmp_path.rglob("*"):
        if path.is_file():
            seen[path.name] = path.read_bytes().decode("utf-8", "surrogateescape")
    again = replay(Recording.open(tmp_path), tools=tools)
    assert again.ok, again.divergence
    seen["screen"] = CliRunner().invoke(show, [str(tmp_path)], standalone_mode=False).output
    assert len(seen) >= 5
    for place, text in seen.items():
        for name, canary in {**CANARIES, "known": KNOWN, "base64": base64.b64encode(KNOWN.encode()).decode()}.items():
            said_by_model = place == "requests" and name in ("ps", "known")
            assert said_by_model or canary not in text, f"{name} in {place}"
