"""`python -c` for the one-liners that people type: imports, versions, what torch sees. A small interpreter over
fake modules.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from opsagent_lab.engine import faults, venvs
from opsagent_lab.gpu_access import access
from opsagent_lab.program import Process
from opsagent_lab.state import Gpu, Venv


class Unknown(Exception):
    """Python that this interpreter does not know (the lab says so; it guesses nothing)."""


class Raised(Exception):
    """An exception of the simulated program: what its last line says."""


_PACKAGES = {
    "sgl_kernel": ("sglang-kernel", "sgl-kernel"), "flashinfer": ("flashinfer-python",),
    "huggingface_hub": ("huggingface-hub",),
    "flash_attn": ("flash-attn-4", "flash-attn"), "PIL": ("pillow",),
}  # fmt: skip
_STDLIB = ("sys", "os", "json", "platform", "importlib", "importlib.metadata", "time", "pathlib")


def run(process: Process, code: str) -> int:
    """Execute; returns the exit status. Raises Unknown."""
    _prefix, venv = venvs.of(process)
    machine = _Machine(process, venv)
    try:
        tree = ast.parse(code)
    except SyntaxError as problem:
        process.write_err(f'  File "<string>", line {problem.lineno}\nSyntaxError: {problem.msg}\n')
        return 1
    try:
        for statement in tree.body:
            machine.do(statement)
    except Raised as problem:
        last = f'  File "<string>", line 1, in <module>\n{problem}\n'
        process.write_err(f"Traceback (most recent call last):\n{last}")
        return 1
    return 0


class _Machine:
    def __init__(self, process: Process, venv: Venv) -> None:
        self.process, self.venv = process, venv
        self.names: dict[str, Any] = {
            "print": self._print, "len": len, "str": str, "int": int, "list": list, "range": range, "bool": bool,
            "tuple": tuple, "sorted": sorted, "round": round,
        }  # fmt: skip

    def _print(self, *values: Any, sep: str = " ", end: str = "\n", flush: bool = False) -> None:
        self.process.write_out(sep.join(str(v) for v in values) + end)

    # -- statements

    def do(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = self._import(alias.name)
                self.names[alias.asname or alias.name.partition(".")[0]] = module
        elif isinstance(node, ast.ImportFrom):
            module = self._import(node.module or "")
            for alias in node.names:
                self.names[alias.asname or alias.name] = self._attribute(module, alias.name)
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.names[target.id] = self.value(node.value)
        elif isinstance(node, ast.Assert):
            if not self.value(node.test):
                raise Raised(f"AssertionError: {self.value(node.msg)}" if node.msg else "AssertionError")
        else:
            raise Unknown(type(node).__name__)

    # -- expressions

    def value(self, node: ast.expr) -> Any:
        simple: dict[type[ast.expr], Callable[[Any], Any]] = {
            ast.Constant: lambda n: n.value,
            ast.Name: self._name,
            ast.Attribute: lambda n: self._attribute(self.value(n.value), n.attr),
            ast.Call: self._call,
            ast.Tuple: lambda n: tuple(self.value(e) for e in n.elts),
            ast.List: lambda n: [self.value(e) for e in n.elts],
            ast.Subscript: lambda n: self.value(n.value)[self.value(n.slice)],
            ast.JoinedStr: lambda n: "".join(str(self.value(e)) for e in n.values),
            ast.FormattedValue: lambda n: self.value(n.value),
            ast.BinOp: self._binary,
        }
        known = simple.get(type(node))
        if known is None:
            raise Unknown(type(node).__name__)
        return known(node)

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            raise Raised(f"NameError: name '{node.id}' is not defined")
        return self.names[node.id]

    def _attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, SimpleNamespace) and not hasattr(value, name):
            raise Raised(f"AttributeError: module '{getattr(value, '__name__', '?')}' has no attribute '{name}'")
        if not isinstance(value, SimpleNamespace) and name.startswith("_"):
            raise Unknown(name)
        return getattr(value, name)

    def _call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        if not callable(function):
            raise Raised(f"TypeError: '{type(function).__name__}' object is not callable")
        return function(
            *[self.value(a) for a in node.args], **{k.arg or "": self.value(k.value) for k in node.keywords}
        )

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Mod):
            return left % right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div):
            return left / right
        raise Unknown(type(node.op).__name__)

    # -- modules

    def _import(self, name: str) -> SimpleNamespace:
        top = name.partition(".")[0]
        if name in _STDLIB or top in _STDLIB:
            return self._stdlib(name)
        version = next((v for p in _PACKAGES.get(top, (top,)) if (v := venvs.version(self.venv, p))), "")
        if not version:
            raise Raised(f"ModuleNotFoundError: No module named '{top}'")
        self.process.sleep(4.0 if top in ("torch", "sglang", "sgl_kernel", "flashinfer") else 0.3)
        return self._torch(version) if top == "torch" else SimpleNamespace(__name__=top, __version__=version)

    def _stdlib(self, name: str) -> SimpleNamespace:
        def installed(package: str) -> str:
            found = venvs.version(self.venv, package)
            if not found:
                raise Raised(f"importlib.metadata.PackageNotFoundError: No package metadata was found for {package}")
            return found

        metadata = SimpleNamespace(__name__="importlib.metadata", version=installed)
        python = self.venv.python
        modules = {
            "importlib": SimpleNamespace(__name__="importlib", metadata=metadata),
            "importlib.metadata": SimpleNamespace(__name__="importlib", metadata=metadata, version=installed),
            "platform": SimpleNamespace(__name__="platform", python_version=lambda: python),
            "sys": SimpleNamespace(
                __name__="sys", version=f"{python} (main, Jun  5 2026, 00:00:00) [GCC 12.2.0]",
                version_info=tuple(int(p) for p in python.split(".")[:3]), executable=self.process.argv[0],
            ),
        }  # fmt: skip
        if name not in modules:
            raise Unknown(f"import {name}")
        return modules[name]

    def _torch(self, version: str) -> SimpleNamespace:
        seen = access(self.process.world, self.process.host, self.process.user)
        cards: list[Gpu] = seen.gpus if seen.ok and not seen.cuda_problem else []
        archs = self.venv.arch_list or ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]

        def capability(index: int = 0) -> tuple[int, int]:
            if index >= len(cards):
                raise Raised("RuntimeError: No CUDA GPUs are available")
            major, minor = cards[index].compute_capability.split(".")
            return int(major), int(minor)

        def compute(*_shape: Any, **_how: Any) -> str:
            sm = int("".join(map(str, capability(0))))
            if not faults.runs_on(tuple(archs), sm):
                raise Raised("torch.AcceleratorError: " + faults.NO_KERNEL.rstrip())
            return "tensor([0.], device='cuda:0')"

        cuda = SimpleNamespace(
            __name__="torch.cuda", is_available=lambda: bool(cards), device_count=lambda: len(cards),
            get_device_name=lambda i=0: cards[i].name if i < len(cards) else capability(i),
            get_device_capability=capability, get_arch_list=lambda: list(archs) if cards else [],
        )  # fmt: skip
        return SimpleNamespace(
            __name__="torch", __version__=version, cuda=cuda, zeros=compute, ones=compute, rand=compute,
            version=SimpleNamespace(__name__="torch.version", cuda=self.venv.cuda or None),
        )  # fmt: skip
