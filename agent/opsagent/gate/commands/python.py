"""Python: a one-liner is read as a syntax tree and is a read only when every node is on the list; scripts are opaque."""

from __future__ import annotations

import ast

from opsagent.gate.argv import Checker, check
from opsagent.gate.commands.shells import fetched, opaque, text
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace
from opsagent.gate.words import words

MODULES, FUNCTIONS, METHODS, DATA = (words("python", each) for each in ("modules", "functions", "methods", "data"))
NODES = (
    ast.Module, ast.Expr, ast.Import, ast.ImportFrom, ast.alias, ast.Assign, ast.Name, ast.Load, ast.Store,
    ast.Constant, ast.Attribute, ast.Call, ast.keyword, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop,
    ast.BoolOp, ast.boolop, ast.Compare, ast.cmpop, ast.JoinedStr, ast.FormattedValue, ast.Subscript, ast.Slice,
    ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp,
    ast.comprehension, ast.IfExp, ast.If, ast.For, ast.Assert, ast.Starred, ast.Pass, ast.With, ast.withitem,
)  # fmt: skip


class Opaque(ValueError):
    """A one-liner that does something which is not on the list."""


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain, '' for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def one_liner(code: str, t: Trace) -> None:
    """Judge code: R0 when it only imports known modules and prints what they tell, R3 otherwise."""
    try:
        if "environ" in code or "getenv" in code:
            raise Opaque("reads the environment")
        tree = ast.parse(code)
        aliases = _imports(tree)
        for node in ast.walk(tree):
            _node(node, aliases, t)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        t.say("R3", "python.opaque", f"runs Python code that we do not follow ({error})")
        opaque(code, t)
        return
    t.say("R0", "python.read", "prints what installed modules say of themselves")


def _imports(tree: ast.Module) -> dict[str, str]:
    """Local name → full dotted name of what is imported. Raises Opaque for a module that is not on the list."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name not in MODULES:
                    raise Opaque(f"imports {each.name}")
                local = each.asname or each.name.split(".")[0]
                found[local] = each.name if each.asname else local
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                full = f"{node.module}.{each.name}"
                fine = full in FUNCTIONS or full in MODULES or each.name in DATA
                if node.module not in MODULES or node.level or not fine:
                    raise Opaque(f"imports {full}")
                found[each.asname or each.name] = full
    clash = {name for name in found if name in FUNCTIONS and found[name] not in FUNCTIONS}
    if clash - {"version"}:
        raise Opaque(f"renames {', '.join(clash)}")
    return found


def _node(node: ast.AST, aliases: dict[str, str], t: Trace) -> None:
    if not isinstance(node, NODES):
        raise Opaque(type(node).__name__)
    if isinstance(node, ast.Call):
        _call(node, aliases, t)
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store) and (node.id in FUNCTIONS or node.id in aliases or node.id == "open"):
            raise Opaque(f"assigns to {node.id}")
        if node.id.startswith("__") and node.id not in ("__name__", "__file__"):
            raise Opaque(node.id)
    elif isinstance(node, ast.Attribute):
        full = _full(node, aliases)
        allowed = node.attr in DATA or node.attr in METHODS or full in FUNCTIONS or full in MODULES
        if not allowed or not isinstance(node.ctx, ast.Load):
            raise Opaque(f"uses .{node.attr}")


def _full(node: ast.expr, aliases: dict[str, str]) -> str:
    name = dotted(node)
    first, _, rest = name.partition(".")
    return ".".join(filter(None, (aliases.get(first, first), rest))) if name else ""


def _call(node: ast.Call, aliases: dict[str, str], t: Trace) -> None:
    name = _full(node.func, aliases)
    if name == "open":
        mode = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "mode"), None)
        reads = mode is None or (isinstance(mode, ast.Constant) and mode.value in ("r", "rb", "rt"))
        if (
            not reads
            or not node.args
            or not isinstance(node.args[0], ast.Constant)
            or not isinstance(node.args[0].value, str)
        ):
            raise Opaque("opens a file in a way that we do not follow")
        paths.read(t, node.args[0].value)
    elif name in FUNCTIONS or (
        isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and not _module(node.func, aliases)
    ):
        for each in node.keywords:
            if each.arg in ("file", "key", "default", "cls", "object_hook", None):
                raise Opaque(f"{name} with {each.arg}=")
    else:
        raise Opaque(f"calls {name or 'a computed function'}")


def _module(func: ast.Attribute, aliases: dict[str, str]) -> bool:
    return isinstance(func.value, ast.Name) and func.value.id in aliases


QUIET_MODULES = frozenset(
    ["sglang.check_env", "torch.utils.collect_env", "site", "sysconfig", "platform", "json.tool", "this", "calendar"]
)
FLAGS = frozenset(["-B", "-E", "-I", "-O", "-OO", "-P", "-q", "-s", "-S", "-u", "-b", "-bb", "-v", "-x", "-d", "-R"])


def python(argv: tuple[str, ...], t: Trace) -> None:
    rest = list(argv[1:])
    while rest:
        word = rest.pop(0)
        if word in ("-V", "--version", "-VV", "-h", "--help"):
            t.say("R0", "help", "python tells its version")
            return
        if word in ("-W", "-X") and rest:
            rest.pop(0)
        elif word in FLAGS or word[:2] in ("-W", "-X"):
            continue
        elif word.startswith("-c"):
            code = word[2:] or (rest.pop(0) if rest else "")
            one_liner(code, t)
            return
        elif word.startswith("-m"):
            module(word[2:] or (rest.pop(0) if rest else ""), rest, t)
            return
        elif word == "-" or not word.startswith("-"):
            _script(word, t)
            return
        elif len(word) > 2 and not word.startswith("--") and set(word[1:]) <= set("BEIOPqsSubvxdR"):
            continue
        elif (
            len(word) > 2
            and not word.startswith("--")
            and set(word[1:-1]) <= set("BEIOPqsSubvxdR")
            and word[-1] in "cm"
        ):
            rest.insert(0, f"-{word[-1]}")
        else:
            t.say("R3", "python.option", f"python {word} is not an option that we know")
            return
    _script("-", t)


def _script(word: str, t: Trace) -> None:
    if word in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        if fetched(t):
            t.say("X", "fetch-and-execute", "python runs what the stage before it fetches")
        if t.stdin is not None and not t.upstream:
            one_liner(t.stdin, t)
        else:
            t.say("R3", "script.stdin", "python runs what it reads")
        return
    if "<(" in word or "$(" in word:
        text(f"python {word}", t)
    paths.read(t, word)
    t.fact(f"sha:{paths.normal(word)}", f"the content of {word} is not known")
    t.say("R3", "script.opaque", f"runs the script {word}, which we did not read")


def module(name: str, rest: list[str], t: Trace) -> None:
    """`python -m NAME …`"""
    if rest[-1:] in (["--help"], ["-h"]) and (name == "venv" or name in QUIET_MODULES):
        t.say("R0", "help", f"{name} tells about itself")
    elif name in ("pip", "uv"):
        check((name, *rest), t)
    elif name == "json.tool":
        given = [word for word in rest if not word.startswith("-")]
        t.say("R0", "read", "prints JSON")
        for each in given[:1]:
            paths.read(t, each)
        for each in given[1:]:
            paths.write(t, each)
    elif name in QUIET_MODULES:
        t.say("R0", "python.read", f"{name} only tells")
    elif name in ("zipfile", "tarfile") and rest[:1] in (["-l"], ["--list"], ["-t"], ["--test"]):
        for each in rest[1:2]:
            paths.read(t, each)
        t.say("R0", "read", "lists an archive")
    elif name in ("venv", "virtualenv"):
        for each in [word for word in rest if not word.startswith("-")]:
            paths.write(t, each)
        t.say("R1", "python.venv", "makes a virtual environment")
        if "--clear" in rest or "--upgrade" in rest:
            t.say("R3", "python.venv-clear", "replaces a virtual environment")
    elif name.startswith(("sglang.launch_server", "sglang.bench", "sglang.srt", "vllm")):
        help_only = bool({"--help", "-h"} & set(rest))
        t.say(
            "R0" if help_only else "R2",
            "python.server",
            f"{name} uses the GPUs, or starts a server outside the typed tool",
        )
    else:
        t.say("R3", "python.module", f"{name} is not a module that we know")


def serving(argv: tuple[str, ...], t: Trace) -> None:
    """The `sglang` and `vllm` commands: their version is a read, a server of theirs belongs to the typed tool."""
    tells = argv[1:] in (("version",), ("--version",), ("-v",), ("--help",)) or argv[-1] in ("--help", "-h")
    t.say("R0" if tells else "R2", "python.server" if not tells else "read", f"{argv[0]} {' '.join(argv[1:2])}")


COMMANDS: dict[str, Checker] = {"python": python, "sglang": serving, "vllm": serving}
