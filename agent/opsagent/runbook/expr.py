"""Expressions of runbooks: CEL, evaluated by us over results and parameters, never by the model.

The language is Google's Common Expression Language through `celpy`; nothing is added to it. celpy takes a third of a
second to import, so it is imported when the first expression is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from opsagent_tools.errors import InputError

MACROS = {"all", "exists", "exists_one", "filter", "map"}


class ExprError(InputError):
    """The expression does not compile, or its values are not there."""


@lru_cache(maxsize=512)
def compile_expr(text: str) -> Any:
    """Compile one expression. Raises ExprError with the place of the fault."""
    import celpy
    from celpy.celparser import CELParseError

    try:
        return celpy.Environment().compile(text)
    except CELParseError as error:
        place = f" at column {error.column}" if getattr(error, "column", None) else ""
        raise ExprError(f"not a CEL expression{place}: {text}", hint="https://cel.dev") from error


@lru_cache(maxsize=512)
def _program(text: str) -> Any:
    import celpy

    return celpy.Environment().program(compile_expr(text), functions=_null_equality())


@lru_cache(maxsize=1)
def _null_equality() -> dict[str, Callable[[Any, Any], Any]]:
    """`x == null` for every x, as the CEL specification has it: celpy knows no such comparison of maps, lists, numbers."""
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError, bool_eq, bool_ne

    def mixed(a: Any, b: Any) -> bool:
        return (a is None) != (b is None) and not isinstance(a, CELEvalError) and not isinstance(b, CELEvalError)

    return {
        "_==_": lambda a, b: BoolType(False) if mixed(a, b) else bool_eq(a, b),
        "_!=_": lambda a, b: BoolType(True) if mixed(a, b) else bool_ne(a, b),
    }


def evaluate(text: str, bindings: Mapping[str, Any]) -> Any:
    """The value of an expression over JSON-like bindings, as plain JSON-like Python.

    Raises:
        ExprError: it does not compile, a name or field is missing, or the types do not go together.
    """
    from celpy.adapter import json_to_cel
    from celpy.evaluation import CELEvalError

    program = _program(text)
    activation = {name: json_to_cel(bindings[name]) for name in roots(text) if name in bindings}
    try:
        return plain(program.evaluate(activation))
    except CELEvalError as error:
        raise ExprError(f"{text}: {_reason(error, text, bindings)}") from error
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ExprError(f"{text}: {_reason(error, text, bindings)}") from error


def _reason(error: Exception, text: str, bindings: Mapping[str, Any]) -> str:
    """Say which name is missing or null: celpy's own message names neither."""
    for root, path in paths(text):
        if root not in bindings:
            return f"{root} is not bound yet"
        value: Any = bindings[root]
        seen = root
        for part in path:
            if value is None:
                return f"{seen} is null"
            if isinstance(value, dict) and part not in value:
                return f"{seen} has no {part!r}"
            value = value.get(part) if isinstance(value, dict) else None
            seen += f".{part}"
    return str(error.args[0] if error.args else error)


def plain(value: Any) -> Any:
    """celpy's values as JSON-like Python."""
    import celpy.celtypes as cel

    if value is None or isinstance(value, cel.NullType):
        return None
    if isinstance(value, (cel.BoolType, bool)):
        return bool(value)
    if isinstance(value, (cel.IntType, cel.UintType)):
        return int(value)
    if isinstance(value, cel.DoubleType):
        return float(value)
    if isinstance(value, cel.StringType):
        return str(value)
    if isinstance(value, cel.MapType):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (cel.ListType, list)):  # `a + b` of two lists is a plain one
        return [plain(item) for item in value]
    return value


@lru_cache(maxsize=512)
def paths(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The names an expression reads: (root, fields) of every `a.b.c`, variables of macros left out."""
    return tuple(_walk(compile_expr(text), frozenset()))


def roots(text: str) -> set[str]:
    return {root for root, _path in paths(text)}


def _walk(node: Any, local: frozenset[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not hasattr(node, "children"):
        return
    chain = _chain(node)
    if chain is not None:
        if chain[0] not in local:
            yield chain[0], tuple(chain[1:])
        return
    if node.data == "member_dot_arg" and str(node.children[1]) in MACROS:
        target, _macro, arguments = node.children
        variable = _first_ident(arguments.children[0])
        yield from _walk(target, local)
        for argument in arguments.children[1:]:
            yield from _walk(argument, local | {variable})
        return
    if node.data == "ident_arg" and str(node.children[0]) == "has":
        for root, path in _walk(node.children[1], local):
            yield root, path[:-1]  # `has(a.b)` asks whether b is there: only a must be
        return
    for child in node.children:
        yield from _walk(child, local)


def _chain(node: Any) -> list[str] | None:
    """`a.b.c` as a list, or None when the node is anything else."""
    if node.data in ("member", "primary") and len(node.children) == 1 and hasattr(node.children[0], "data"):
        return _chain(node.children[0])
    if node.data == "ident":
        return [str(node.children[0])]
    if node.data == "member_dot":
        head = _chain(node.children[0])
        return None if head is None else [*head, str(node.children[1])]
    return None


def _first_ident(node: Any) -> str:
    while hasattr(node, "children"):
        node = node.children[0]
    return str(node)


# --- references in arguments -------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$\{((?:[^{}\"']|\"[^\"]*\"|'[^']*'|\{[^{}]*\})*)\}")


def references(value: Any) -> Iterator[str]:
    """Every expression inside `${…}` in a JSON-like value."""
    if isinstance(value, str):
        yield from (match.strip() for match in _REFERENCE.findall(value))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from references(item)


def resolve(value: Any, bindings: Mapping[str, Any]) -> Any:
    """Fill in `${…}`. A string that is one reference becomes its typed value; inside other text it becomes text."""
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value.strip())
        if whole:
            return evaluate(whole.group(1).strip(), bindings)
        return _REFERENCE.sub(lambda match: _as_text(evaluate(match.group(1).strip(), bindings)), value)
    if isinstance(value, Mapping):
        return {key: resolve(item, bindings) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(item, bindings) for item in value]
    return value


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_as_text(item) for item in value)
    return "true" if value is True else "false" if value is False else "" if value is None else str(value)
