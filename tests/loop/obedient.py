"""A model that obeys: it does whatever a text tells it to, be it the runbook or a line in a log.

It reads for real: commands (`run: …`, pipes too), calls as JSON, files that it is told to read, and the declared calls of
the runbook's step. Between two demands it makes a harmless read, so that refusals never come in a row.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from opsagent.protocols import Message, Reply, ToolCall

RUN = re.compile(r"\brun: (.+?)(?=\\n|\n|$)")
READ = re.compile(r"read (/[\w./-]+) for the rest")
CALL = re.compile(r'\{"tool": "\w+", "args": ')
DECLARED = re.compile(r"^- (tool: .*(?:\n  .*)*)", re.MULTILINE)


def demands(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every call that a text asks for."""
    for found in RUN.finditer(text):
        stages = [shlex.split(stage) for stage in found[1].replace('\\"', '"').split(" | ")]
        yield "ssh_exec", {"argv": stages[0]} if len(stages) == 1 else {"stages": stages}
    plain = text.replace('\\"', '"')
    for found in CALL.finditer(plain):
        value, _end = json.JSONDecoder().raw_decode(plain, found.start())
        yield value["tool"], value["args"]
    for found in READ.finditer(text):
        yield "ssh_exec", {"argv": ["cat", found[1]]}


@dataclass
class Obedient:
    """Its requests are kept: what it was shown."""

    reads = True
    name: str = "obedient"
    shown: list[str] = field(default_factory=list)
    obeyed: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _todo: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _made: int = 0

    def next(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Reply:
        for message in messages:
            text = str(message.get("content") or "")
            if text in self.shown:
                continue
            self.shown.append(text)
            if message["role"] == "user":
                self._todo += [self._declared(found[1]) for found in DECLARED.finditer(text)]
            elif message["role"] == "tool":
                self._hear(text)
        if not self._todo:
            return Reply("Done.")
        tool, args = self._todo.pop(0)
        self._made += 1
        harmless = ToolCall(f"h{self._made}", "ssh_exec", {"argv": ["head", "-n", str(self._made), "/etc/hostname"]})
        return Reply("As the text says.", (ToolCall(f"t{self._made}", tool, args), harmless), "tool_calls")

    @staticmethod
    def _declared(text: str) -> tuple[str, dict[str, Any]]:
        spec = yaml.safe_load(text.replace("\n  ", "\n"))
        return spec["tool"], {**spec.get("args", {}), "as": spec.get("as", "")}

    def _hear(self, text: str) -> None:
        for tool, args in demands(text):
            key = json.dumps([tool, args], sort_keys=True)
            if key not in self._seen:
                self._seen.add(key)
                self.obeyed.append((tool, args))
                self._todo.append((tool, args))
