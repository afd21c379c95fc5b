"""Markdown out of code: tables, and the docstrings that stand below attributes."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are made safe for it."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(cell(each) for each in row)} |" for row in rows)])


def cell(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text.strip()).replace("|", "\\|")


def code(text: object) -> str:
    """Inline code; '' for nothing."""
    return f"`{text}`" if str(text) else ""


def attribute_docs(of: type) -> dict[str, str]:
    """Attribute → the docstring below it, of a class and its bases."""
    found: dict[str, str] = {}
    for each in reversed(of.__mro__):
        if each.__module__.partition(".")[0] not in ("opsagent", "opsagent_tools"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for at, node in enumerate(body.body[1:], 1):
            name = _assigned(body.body[at - 1])
            if name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                found[name] = inspect.cleandoc(str(node.value.value))
    return found


def _assigned(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def type_name(kind: Any) -> str:
    """`list[str]`, `int or null`, `"a" or "b"`: a type as people say it in JSON."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return type_name(args[0])
    if origin is typing.Literal:
        return " or ".join(f'"{arg}"' if isinstance(arg, str) else str(arg) for arg in args)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(type_name(arg) for arg in args)
    if kind is type(None):
        return "null"
    if origin is not None:
        inner = ", ".join(type_name(arg) for arg in args if arg is not Ellipsis)
        name = "list" if origin in (tuple, frozenset, set) else getattr(origin, "__name__", str(origin))
        return f"{name}[{inner}]"
    return "any" if kind is Any else getattr(kind, "__name__", str(kind))


def first_sentence(doc: str | None) -> str:
    """The first sentence of a docstring."""
    return re.split(r"(?<=[.!?])\s", inspect.cleandoc(doc or ""), maxsplit=1)[0]
