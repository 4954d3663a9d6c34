"""A hash of the code that one method's training runs: a change of another method leaves finished cells valid.

Comments, docstrings and layout do not count. Follows the imports of `harness` from the method's module and the runner;
names that come through a folder's door are followed to the file that defines them. Commands, the list of all
methods, and kernels of GPUs, on which no study runs, are left out.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from harness.methods.registry import METHODS
from reports.core.context import ROOT

RUNNER = "harness.running._runner"
WHOLE = "harness.methods.registry"  # imports every method
GPU_KERNELS = ("_cuda", ".triton_code")  # how the names of their modules end


@cache
def code_of(method: str) -> str:
    """16 hexadecimal digits, for the text of a method with or without its options."""
    module = METHODS.find(method.partition(":")[0]).__module__
    digest = hashlib.sha256()
    for name in sorted(modules_behind(module, RUNNER)):
        digest.update(f"{name}\0{_meaning(name)}".encode())
    return digest.hexdigest()[:16]


@cache
def _meaning(module: str) -> str:
    """The code of a module without comments, docstrings and layout, which change nothing that it computes."""
    tree = ast.parse(_file(module).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def modules_behind(*modules: str) -> frozenset[str]:
    """Modules of `harness` that these import, and those import, themselves included."""
    found, waiting = set[str](), list(modules)
    while waiting:
        name = waiting.pop()
        if (
            name in found
            or name == WHOLE
            or name.endswith(GPU_KERNELS)
            or not name.startswith("harness.")
            or not _file(name).is_file()
        ):
            continue
        found.add(name)
        waiting += _imports(name)
    return frozenset(found)


@cache
def _imports(module: str) -> tuple[str, ...]:
    return tuple(_named(ast.parse(_file(module).read_text())))


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if _file(whole).is_file() else _behind(node.module).get(alias.name, node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def _behind(door: str) -> dict[str, str]:
    """Name -> the file that a folder's door takes it from."""
    if not door.startswith("harness.") or _file(door).name != "__init__.py":
        return {}
    imports = [node for node in ast.parse(_file(door).read_text()).body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


def _file(module: str) -> Path:
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
