"""Asking once through the real SDK and a real socket, for tests of what comes back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from wire.server import USAGE, Answer, WireServer, delta, stream

from opsagent.models.openai_chat import Endpoint, OpenAIChat
from opsagent.protocols import Reply
from opsagent_tools.errors import OpsError

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
TOOL = {"type": "function", "function": {"name": "tail_log", "parameters": {"type": "object", "properties": {}}}}
ASK: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


@dataclass
class NoClock:
    """Waits in no time, and remembers."""

    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        return sum(self.waits)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@dataclass
class Talk:
    """What came of a script: reply or error, the server, the waits and the events."""

    server: WireServer
    waits: list[float]
    events: list[tuple[str, dict[str, Any]]]
    reply: Reply | None = None
    error: OpsError | None = None
    client: OpenAIChat | None = None

    def types(self) -> list[str]:
        return [kind for kind, _ in self.events]


def talk(
    *script: Answer,
    messages: Sequence[dict[str, Any]] = ASK,
    stall_s: float = 5.0,
    first_s: float = 5.0,
    **options: Any,
) -> Talk:
    """Ask once through the real SDK and a real socket. Every answer of the script must be met."""
    clock = NoClock()
    with WireServer(script) as server:
        made = Talk(server, clock.waits, [])
        endpoint = Endpoint("m", server.url, "EMPTY", connect_s=2.0, first_s=first_s, stall_s=stall_s)
        client = OpenAIChat(
            endpoint, clock=clock, rng=random.Random(1), now=lambda: NOW,
            emit=lambda kind, **data: made.events.append((kind, data)), **options,
        )  # fmt: skip
        made.client = client
        try:
            made.reply = client.next(messages, [TOOL])
        except OpsError as error:
            made.error = error
        assert len(server.requests) == len(script), f"{len(server.requests)} of {len(script)} answers were asked for"
    return made


def calls_of(made: Talk) -> list[tuple[str, str, Any]]:
    assert made.reply is not None, made.error
    return [(c.id, c.name, c.arguments) for c in made.reply.calls]


def one_call(*entries: dict[str, Any], finish: str = "tool_calls") -> Answer:
    return stream(*[delta(tool_calls=[entry]) for entry in entries], delta(finish), USAGE)
