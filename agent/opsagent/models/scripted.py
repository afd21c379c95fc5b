"""A model for tests: answers from a script, keeps every request, and must be used up."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsagent.protocols import Message, Reply, ToolCall

Step = Reply | Exception | Callable[[Sequence[Message], Sequence[dict[str, Any]]], Reply]
"""An answer, an error to raise, or a function of the request."""


@dataclass
class ScriptedModel:
    """Answers in order. A request that the script does not have is an AssertionError, and so is an answer left over."""

    script: Sequence[Step]
    name: str = "scripted"
    reads: bool = True
    requests: list[tuple[list[Message], list[dict[str, Any]]]] = field(default_factory=list)

    def next(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Reply:
        self.requests.append((copy.deepcopy(list(messages)), list(tools)))
        number = len(self.requests)
        assert number <= len(self.script), f"request {number} is not in the script of {len(self.script)}"
        step = self.script[number - 1]
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, Reply) else step(messages, tools)

    def assert_used_up(self) -> None:
        """Every answer of the script was asked for."""
        assert len(self.requests) == len(self.script), f"{len(self.requests)} of {len(self.script)} answers were used"


def calls(*wanted: tuple[str, dict[str, Any]], text: str = "") -> Reply:
    """A reply with these calls: `calls(("tail_log", {"path": "/x"}))`."""
    made = tuple(ToolCall(f"call_{n}", name, json.dumps(args)) for n, (name, args) in enumerate(wanted))
    return Reply(text=text, calls=made, finish="tool_calls")


def says(text: str) -> Reply:
    """A reply without a call."""
    return Reply(text=text)
