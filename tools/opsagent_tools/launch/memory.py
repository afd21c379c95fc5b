"""Waiting until a stopped server's GPU memory is back."""

from __future__ import annotations

from opsagent_tools.host import Host
from opsagent_tools.machine.gpus import used_mib
from opsagent_tools.tool import Context, Progress

SLACK_MIB = 1024
PATIENCE_S = 60.0


def wait_back(host: Host, wanted: dict[int, int] | None, ctx: Context) -> tuple[bool | None, dict[int, int]]:
    """Until no card uses more than `wanted` (MiB by card, what it was before) and a little: (true, usage now).

    False: it did not come back within a minute. None: there is no nvidia-smi to ask.
    """
    began = ctx.clock.now()
    while True:
        now = used_mib(host)
        if now is None or wanted is None:
            return None, {}
        late = {card: used for card, used in now.items() if used > wanted.get(card, 0) + SLACK_MIB}
        if not late:
            return True, now
        if ctx.clock.now() - began >= PATIENCE_S:
            return False, now
        ctx.progress(Progress(f"waiting for the memory of GPU {', '.join(map(str, sorted(late)))}"))
        ctx.clock.sleep(2.0)
