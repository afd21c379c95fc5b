"""A server that was started long before the scenario begins: it serves at once, and its log looks the part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opsagent_lab.state import SimHost, SimProcess

if TYPE_CHECKING:
    from opsagent_lab.world import World


def start(
    world: World,
    host: SimHost,
    argv: list[str],
    *,
    age_s: float = 86_400.0,
    env: dict[str, str] | None = None,
    **fields: Any,
) -> SimProcess:
    """Start `python -m sglang.launch_server …` as a server that has been up for `age_s` simulated seconds.

    `fields` are those of SimProcess (unit, cgroup, log, user). It listens as soon as its thread runs; wait with
    `world.connect` before a client needs it.
    """
    born = world.now() - age_s
    sim = world.add_process(host, argv, started=born, env=dict(env or {}), **fields)
    sim.memo.update(born=born, preloaded=True)
    return world.spawn(host, argv, sim=sim)
