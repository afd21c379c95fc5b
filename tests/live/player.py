"""A program that plays a small run under the live view, for tests at a terminal: `python player.py SCENE [SECONDS]`.

Scenes: `plain` (two steps with a bar), `hostile` (every text of others is an attack), `noisy` (warnings on stderr while
lines change), `broken` (the view itself fails in the middle).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from loop.world import TOOLS, AddArgs, Count, CounterHost, make_run

from opsagent.autopilot import Autopilot
from opsagent.live import watcher
from opsagent.live_view import LiveView
from opsagent.loop import drive
from opsagent.places import Places
from opsagent.run import Follower
from opsagent.session import Wish
from opsagent_tools.hosts.inventory import Inventory
from opsagent_tools.tool import Context, Progress, Tool

BODY = """
    ## Raise {#raise}

    ```call
    tool: add
    args: {by: "${goal}"}
    as: added
    ```
    ```check
    - added.value == goal
    ```

    ## Look {#look}

    ```call
    tool: read
    as: seen
    ```
    ```check
    - seen.value >= goal
    ```
"""
ATTACK = "\x1b[2J\x1b[H\x1b]0;owned\x07\x1b[31mPWNED\x9b2J \u202egnp.exe [red]x[/red] \r\n\u2028" + "A" * 5000
LONG = ATTACK * 200
"""A megabyte on one line."""
FRAMES = 20


def main(scene: str, seconds: float) -> None:
    text = ATTACK if scene == "hostile" else "org/name over xet, 5 MiB/s"

    def slow(host: CounterHost, args: Any, ctx: Context) -> Count:
        for number in range(FRAMES + 1):
            ctx.progress(Progress(text, number / 2, FRAMES / 2, "GiB"))
            if scene == "noisy" and number % 5 == 0:
                print(f"warning {number}", file=sys.stderr)
            ctx.clock.sleep(seconds / FRAMES)
        host.value += args.by if isinstance(args, AddArgs) else 0
        return Count(value=host.value, summary=f"value {host.value} {LONG if scene == 'hostile' else ''}")

    slowly: Callable[..., Count] = slow
    tools = {name: Tool(name, "", TOOLS[name].args, Count, slowly) for name in ("add", "read")}
    run = make_run(BODY)
    view = watcher(Wish(run.runbook, Places({"box": "box"}, Inventory({}))), sys.stderr)
    if isinstance(view, Follower):
        view.attach(run)
    run.tools, run.watcher = {**TOOLS, **tools}, view
    if scene == "broken" and isinstance(view, LiveView):
        view._scene.take = lambda: 1 // 0  # type: ignore[method-assign,assignment,return-value]
    code = drive(run, Autopilot(run))
    run.emit("run.finished", status="verified", exit_code=int(code), failed=None)
    print("the report")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.6)
