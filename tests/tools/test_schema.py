"""The JSON schemas that an LLM gets, as they are today: a change shows in the diff of tests/tools/schemas/."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from opsagent_tools.errors import InputError
from opsagent_tools.registry import NAMES, TOOLS
from opsagent_tools.schema import function_schema
from opsagent_tools.tool import Args, Result, Tool

FOLDER = Path(__file__).parent / "schemas"


@pytest.mark.parametrize("name", list(TOOLS))
def test_snapshot(name: str) -> None:
    """Run with UPDATE_SCHEMAS=1 to accept the schemas of today."""
    text = json.dumps(function_schema(TOOLS[name], ["target"]), indent=1, ensure_ascii=False) + "\n"
    path = FOLDER / f"{name}.json"
    if os.environ.get("UPDATE_SCHEMAS"):
        path.write_text(text)
    assert path.read_text() == text, "run with UPDATE_SCHEMAS=1 if this change is wanted"


@pytest.mark.parametrize("name", list(TOOLS))
def test_every_endpoint_can_take_it(name: str) -> None:
    schema = function_schema(TOOLS[name], ["source", "target"])["function"]
    text = json.dumps(schema)
    assert not any(word in text for word in ('"$ref"', '"$defs"', '"title"', '"prefixItems"', '"oneOf"'))
    parameters = schema["parameters"]
    assert (parameters["type"], parameters["additionalProperties"]) == ("object", False)
    assert parameters["properties"]["host"]["enum"] == ["source", "target"]
    assert "host" in parameters["required"]
    undescribed = [key for key, value in parameters["properties"].items() if not value.get("description")]
    assert undescribed == []
    assert 40 < len(schema["description"]) < 700


def test_every_tool_of_the_list_is_there() -> None:
    assert [name for name in NAMES if name not in list(TOOLS)] == []
    assert {TOOLS[name].name for name in TOOLS} == set(NAMES)


class Inner(BaseModel):
    size: int = 1


class Wanted(Args):
    inner: Inner = Field(description="x")
    maybe: Inner | None = None


class Bad(Args):
    pair: tuple[int, str]


def tool(args: type[Args]) -> Tool[Any, Any]:
    return Tool(name="t", description="d", args=args, result=Result, run=lambda *_a: Result())


def test_references_are_inlined_and_null_is_left_out() -> None:
    properties = function_schema(tool(Wanted))["function"]["parameters"]["properties"]
    assert properties["inner"] == {
        "description": "x",
        "type": "object",
        "properties": {"size": {"default": 1, "type": "integer"}},
    }
    assert properties["maybe"]["type"] == "object"
    assert "default" not in properties["maybe"]


def test_what_endpoints_cannot_take_is_refused() -> None:
    with pytest.raises(InputError):
        function_schema(tool(Bad))
