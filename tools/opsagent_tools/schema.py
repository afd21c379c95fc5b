"""The JSON schema of a tool as an LLM endpoint takes it, made from its pydantic arguments.

Chat Completions endpoints differ in what they accept: `$ref` and `$defs` are inlined, titles dropped, `const` written as an
enum, and `anyOf` with null reduced to the other type (an optional argument is simply left out). What they cannot take
(tuples, patterns in keys, recursion, unions of objects) is an error when the tool is written, not when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsagent_tools.errors import InputError
from opsagent_tools.tool import Tool

DROPPED = ("title", "$defs", "examples", "exclusiveMinimum", "exclusiveMaximum")
REFUSED = ("prefixItems", "patternProperties", "oneOf", "not", "if", "dependentSchemas")
MAX_DEPTH = 12


def parameters(tool: Tool[Any, Any], roles: Sequence[str] = ()) -> dict[str, Any]:
    """Schema of the tool's arguments, plus `host`: the role on which it acts (an enum when the run has several)."""
    raw = tool.args.model_json_schema()
    made: dict[str, Any] = _plain(raw, raw.get("$defs", {}), tool.name, 0)
    made.setdefault("properties", {})
    made.setdefault("type", "object")
    made["additionalProperties"] = False
    if roles:
        host = {"type": "string", "enum": list(roles), "description": "The host of the runbook on which to do it."}
        made["properties"] = {"host": host, **made["properties"]}
        if len(roles) > 1:
            made["required"] = ["host", *made.get("required", [])]
    return made


def function_schema(tool: Tool[Any, Any], roles: Sequence[str] = ()) -> dict[str, Any]:
    """The entry of `tools` in a Chat Completions request."""
    described = {"name": tool.name, "description": tool.description, "parameters": parameters(tool, roles)}
    return {"type": "function", "function": described}


def _plain(node: Any, defs: Mapping[str, Any], where: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InputError(f"{where}: the arguments are nested too deeply, or refer to themselves")
    if isinstance(node, list):
        return [_plain(item, defs, where, depth + 1) for item in node]
    if not isinstance(node, dict):
        return node
    for key in REFUSED:
        if key in node:
            raise InputError(f"{where}: endpoints do not take {key!r}", hint="use a list, an enum or a flat object")
    if "$ref" in node:
        target = defs[node["$ref"].rpartition("/")[2]]
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _plain({**target, **rest}, defs, where, depth + 1)
    made = {key: value for key, value in node.items() if key not in DROPPED}
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if "anyOf" in made:
        return _union(made, defs, where, depth)
    if "properties" in made:
        properties = {
            name: _plain(value, defs, f"{where}.{name}", depth + 1) for name, value in made["properties"].items()
        }
        made["properties"] = properties
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _plain(made[key], defs, where, depth + 1)
    return made


def _union(node: dict[str, Any], defs: Mapping[str, Any], where: str, depth: int) -> dict[str, Any]:
    """One of several types: null is dropped; of the rest only scalars and lists may differ, as a list of types."""
    kinds = [_plain(kind, defs, where, depth + 1) for kind in node.pop("anyOf")]
    kinds = [kind for kind in kinds if kind.get("type") != "null"]
    if node.get("default", ...) is None:
        node.pop("default")
    if len(kinds) == 1 and kinds[0].get("type") == "object" and kinds[0].get("additionalProperties") is True:
        kinds.append({"type": "string", "description": 'An earlier result by its name: "${name}".'})
    if len(kinds) == 1:
        return {**kinds[0], **node}
    if sum(kind.get("type") == "object" for kind in kinds) > 1:
        raise InputError(f"{where}: a union of objects is not something that endpoints take")
    return {"anyOf": kinds, **node}
