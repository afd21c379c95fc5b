"""Makes `opsagent_tools/sglang/data/options.json` from SGLang's own sources: python tools/sglang_options.py VERSION=DIR …

DIR is an unpacked wheel (`pip download --no-deps sglang==VERSION`). Nothing of SGLang is imported: calls of
`add_argument` and fields
with `Arg(…)` are read from the syntax tree. An option is [names, destination, kind, type, choices, default, new
name]; kind is
`switch`, `toggle` (a switch with an opposite, `--no-…`), `value`, `list`, `many` (a list that may be empty) or `maybe`
(its value may be left out). Choices that are computed at run time are null.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent / "opsagent_tools" / "sglang" / "data" / "options.json"
SWITCHES = {"store_true", "store_false", "DeprecatedStoreTrueAction", "DeprecatedAction"}
TOGGLE = "BooleanOptionalAction"
KINDS = {"?": "maybe", "+": "list", "*": "many"}
PARSERS = {
    "tool-call-parser": ("srt/function_call/function_call_parser.py", "ToolCallParserEnum"),
    "reasoning-parser": ("srt/parser/reasoning_parser.py", "DetectorMap"),
}


def constants(tree: ast.AST, known: dict[str, Any]) -> dict[str, Any]:
    """Names with literal values, also `X = Y + [...]` and `X = list(Y)`; what is `known` stays as it is."""
    found = dict(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                value = literal(node.value, found)
                if value is not None:
                    found.setdefault(target.id, value)
    return found


def literal(node: ast.AST | None, names: dict[str, Any]) -> Any:
    """The value of an expression of literals, known names, `+`, `*` unpacking and list(); None when it is computed."""
    if node is None:
        return None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = literal(node.left, names), literal(node.right, names)
        return left + right if isinstance(left, list) and isinstance(right, list) else None
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        out: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = literal(item.value, names)
                if not isinstance(inner, list):
                    return None
                out += inner
                continue
            value = literal(item, names)
            if value is None and not (isinstance(item, ast.Constant) and item.value is None):
                return None
            out.append(value)
        return out
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("list", "sorted", "set", "frozenset")
        and node.args
    ):
        return literal(node.args[0], names)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


def dictionary_keys(path: Path, name: str) -> list[str] | None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8-sig"))) if path.exists() else ():
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == name:
                return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    return None


def word(node: ast.AST | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return str(node.value) if isinstance(node, ast.Constant) else ""


def from_call(call: ast.Call, names: dict[str, Any], defaults: dict[str, Any]) -> list[Any] | None:
    flags = [str(a.value) for a in call.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")]
    if not flags:
        return None
    keys = {key.arg: key.value for key in call.keywords if key.arg}
    action = word(keys.get("action"))
    dest = word(keys.get("dest")) or flags[0].lstrip("-").replace("-", "_")
    nargs = literal(keys.get("nargs"), names)
    kind = KINDS.get(nargs, "value")
    if action in SWITCHES or action == TOGGLE:
        kind = "toggle" if action == TOGGLE else "switch"
    default = keys.get("default")
    value = literal(default, names)
    if isinstance(default, ast.Attribute) and word(default.value) == "ServerArgs":
        value = defaults.get(default.attr)
    new = literal(keys.get("new_flag"), names)
    return [flags, dest, kind, word(keys.get("type")) or "str", literal(keys.get("choices"), names), plain(value), new]


def plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | list | type(None)) else None


def from_field(node: ast.AnnAssign, names: dict[str, Any]) -> list[Any] | None:
    """A field `name: A[type, Arg(…)] = default` of 0.5.2x."""
    if not (isinstance(node.annotation, ast.Subscript) and word(node.annotation.value) in ("A", "Annotated")):
        return None
    inner = node.annotation.slice
    if not isinstance(inner, ast.Tuple) or not isinstance(node.target, ast.Name):
        return None
    kind_node, meta = inner.elts[0], inner.elts[1]
    keys = {key.arg: key.value for key in meta.keywords if key.arg} if isinstance(meta, ast.Call) else {}
    if literal(keys.get("no_cli"), names):
        return None
    name = node.target.id
    text = ast.unparse(kind_node)
    base = text.removeprefix("Optional[").rstrip("]") if text.startswith("Optional[") else text
    choices = literal(keys.get("choices"), names)
    if "Literal[" in text and choices is None:
        choices = [c.value for c in ast.walk(kind_node) if isinstance(c, ast.Constant)]
    kind = "value"
    if word(keys.get("action")) == TOGGLE:
        kind = "toggle"
    elif base == "bool" or word(keys.get("action")) in SWITCHES:
        kind = "switch"
    elif ("List[" in text or "list[" in text) and "type_parser" not in keys:
        kind = "list"
    extra = keys.get("action_kwargs")
    nargs = keys.get("nargs") or next(
        (value for key, value in zip(extra.keys, extra.values, strict=True) if word(key) == "nargs")
        if isinstance(extra, ast.Dict)
        else iter(()),
        None,
    )
    if kind in ("value", "list"):
        kind = KINDS.get(literal(nargs, names), kind)
    flags = [
        literal(keys.get("cli_name"), names) or "--" + name.replace("_", "-"),
        *(literal(keys.get("aliases"), names) or []),
    ]
    plain_kind = type(choices[0]).__name__ if "Literal[" in text and choices else base
    kind_of = word(keys.get("type_parser")) or next((known for known in ("int", "float") if known in plain_kind), "str")
    return [flags, name, kind, kind_of, choices, plain(literal(node.value, names)), None]


def options(root: Path) -> list[list[Any]]:
    main = root / "sglang" / "srt" / "server_args.py"
    files = [main, *sorted((main.parent / "arg_groups").rglob("*.py"))]
    trees = [ast.parse(path.read_text(encoding="utf-8-sig")) for path in files]
    common = main.parent / "utils" / "common.py"  # choices of the LoRA options
    names: dict[str, Any] = {}
    for tree in (ast.parse(common.read_text(encoding="utf-8-sig")), *trees[1:], trees[0]):
        names = constants(tree, names)
    defaults = {
        node.target.id: literal(node.value, names)
        for node in ast.walk(trees[0]) if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }  # fmt: skip
    found: dict[str, list[Any]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            row = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                row = from_call(node, names, defaults)
            elif isinstance(node, ast.AnnAssign) and len(files) > 1:
                row = from_field(node, names)
            if row:
                found.setdefault(row[0][0], row)
    for name, (path, table) in PARSERS.items():
        row = found.get(f"--{name}")
        keys = dictionary_keys(root / "sglang" / path, table)
        if row and keys:
            row[4] = keys if row[4] is None or len(files) == 1 else row[4]
            row[4] = [*keys, "auto"] if len(files) > 1 else keys
    return [found[key] for key in sorted(found)]


def main() -> None:
    table = {}
    for argument in sys.argv[1:]:
        version, _, folder = argument.partition("=")
        table[version] = options(Path(folder))
        print(version, len(table[version]))
    TARGET.write_text(json.dumps(table, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
