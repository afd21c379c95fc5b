"""docs/reference/tools.md: the typed tools, their arguments and results, from their pydantic models."""

from __future__ import annotations

import json
from typing import Any

from bench.reference.markdown import attribute_docs, code, table, type_name

from opsagent import control
from opsagent_tools.registry import TOOLS
from opsagent_tools.tool import Result, Tool

HEAD = """# Tools

What a runbook, a model or an MCP client can call. The tier is the least that a call has; the gate may raise it and never
lowers it ([policy.md](policy.md)). Every result also has `cause` (a slug of [causes.md](causes.md), or null) and `summary`.
A `host` (a role of the runbook) is given beside the arguments. `resume` says what happens to a call whose link was lost.
"""
RESUME = {
    "read_only": "made again", "idempotent": "made again", "reconcilable": "the host is asked what happened",
    "non_retriable": "a person looks at the host",
}  # fmt: skip


def page() -> str:
    parts = [HEAD, "## On hosts\n", *(_tool(tool) for tool in TOOLS.values())]
    ours = [each for each in vars(control).values() if isinstance(each, Tool)]
    return "\n".join([*parts, "## On the run itself\n", *(_tool(tool, ours=True) for tool in ours)])


def _tool(tool: Tool[Any, Any], *, ours: bool = False) -> str:
    about = "" if ours else f"Tier {tool.tier} · resume: {RESUME[tool.recovery]}\n"
    parts = [f"### {tool.name}\n", tool.description + "\n", about, _arguments(tool), _results(tool)]
    return "\n".join(part for part in parts if part)


def _arguments(tool: Tool[Any, Any]) -> str:
    rows = []
    for name, field in tool.args.model_fields.items():
        given = "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
        rows.append([code(field.alias or name), type_name(field.annotation), given, field.description or ""])
    return table(["argument", "type", "default", "what it is"], rows) + "\n" if rows else ""


def _results(tool: Tool[Any, Any]) -> str:
    docs = attribute_docs(tool.result)
    own = {name: field for name, field in tool.result.model_fields.items() if name not in Result.model_fields}
    rows = [[code(name), type_name(field.annotation), docs.get(name, "")] for name, field in own.items()]
    return table(["result", "type", "what it is"], rows) + "\n" if rows else ""


def _value(value: object) -> str:
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    text = json.dumps(value, ensure_ascii=False, default=list)
    return code(text if len(text) <= 60 else text[:59] + "…")
