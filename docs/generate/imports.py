"""Imports between modules from the syntax trees of a checkout: levels, cycles, upward imports. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGES = ("harness", "sims", "real", "reports")
Graph = Mapping[str, set[str]]

COMMAND_LINE = ("harness.commands", "harness.cli", "harness.__main__", "real.__main__")
"""Entry points and commands, which may import everything."""

FACE = "harness"
"""The package itself, whose functions for people are those of the commands, imported when they are used."""

ABOVE = {"harness": 0, "sims": 1, "real": 1, "reports": 2}
"""Package -> its height; imports go down only; commands are above all."""


@dataclass(frozen=True)
class Code:
    """The modules of a checkout.

    Attributes:
        lines: module -> lines of its file.
        imports: module -> modules of the same checkout that it imports, wherever in the file.
        documents: module -> first paragraph of its docstring, in one line.
        folders: modules that are the `__init__` of a folder.
    """

    lines: dict[str, int]
    imports: dict[str, set[str]]
    documents: dict[str, str]
    folders: frozenset[str]


@cache
def code_of(root: Path) -> Code:
    """The imports between modules of the four packages of the checkout at `root`."""
    paths = {_name(path.relative_to(root)): path for package in PACKAGES for path in (root / package).rglob("*.py")}
    paths = dict(sorted(paths.items()))
    trees = {module: ast.parse(path.read_text(), str(path)) for module, path in paths.items()}
    folders = frozenset(module for module, path in paths.items() if path.name == "__init__.py")
    return Code(
        {module: len(path.read_text().splitlines()) for module, path in paths.items()},
        {
            module: set(_imported(tree, module, module in folders, set(trees))) - {module}
            for module, tree in trees.items()
        },
        {module: _first_paragraph(ast.get_docstring(tree) or "") for module, tree in trees.items()},
        folders,
    )


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _name(path: Path) -> str:
    return path.with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def _imported(tree: ast.AST, module: str, folder: bool, known: set[str]) -> Iterator[str]:
    """Modules of this checkout that a tree imports: in functions, for typing, and by `import_module` of a literal."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".") if folder else module.split(".")[:-1]
            base = (
                [*above[: len(above) - node.level + 1], *filter(None, [node.module])]
                if node.level
                else [node.module or ""]
            )
            inside = ".".join(base)
            names = [f"{inside}.{a.name}" if f"{inside}.{a.name}" in known else inside for a in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        yield from (name for name in names if name in known)


def folder_of(module: str) -> str:
    """The folder or loose file of a package that a module belongs to, as `package.folder`; the package for its own."""
    return ".".join(module.split(".")[:2])


def height_of(module: str) -> int:
    """The height of a module's package; commands are above all."""
    return 3 if module == FACE or module.startswith(COMMAND_LINE) else ABOVE[module.partition(".")[0]]


def folder_imports(code: Code) -> dict[str, set[str]]:
    """Folder or loose file -> those it imports."""
    found: dict[str, set[str]] = {folder_of(module): set() for module in code.imports if "." in module}
    for module, others in code.imports.items():
        if "." in module:
            found[folder_of(module)] |= {folder_of(other) for other in others if "." in other} - {folder_of(module)}
    return found


def within(graph: Graph, package: str) -> dict[str, set[str]]:
    """The part of a graph in one package; commands are in none."""
    members = [name for name in graph if name.partition(".")[0] == package and height_of(name) < 3]
    return {name: graph[name] & set(members) for name in members}


def components(graph: Graph) -> list[list[str]]:
    """Strongly connected components, each sorted, those without imports first (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for start in sorted(graph):
        work = [] if start in index else [(start, iter(sorted(graph[start])))]
        while work:
            name, rest = work[-1]
            if name not in index:
                index[name] = low[name] = len(index)
                stack.append(name)
            follow = next((other for other in rest if other in graph and (other not in index or other in stack)), None)
            if follow is not None and follow not in index:
                work.append((follow, iter(sorted(graph[follow]))))
            elif follow is not None:
                low[name] = min(low[name], index[follow])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = stack.index(name)
                    found.append(sorted(stack[at:]))
                    del stack[at:]
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Names that import each other, directly or around."""
    return [component for component in components(graph) if len(component) > 1]


def levels(graph: Graph) -> dict[str, int]:
    """Longest chain of imports below every name; names in a cycle share a level."""
    found: dict[str, int] = {}
    for component in components(graph):
        below = {other for name in component for other in graph[name] if other in graph} - set(component)
        level = 1 + max((found[other] for other in below), default=-1)
        found |= dict.fromkeys(component, level)
    return found


def reduced(graph: Graph) -> dict[str, set[str]]:
    """The imports that no chain of others implies; inside cycles all of them."""
    reach: dict[str, set[str]] = {}
    for component in components(graph):
        direct = {other for name in component for other in graph[name] if other in graph}
        everything = direct.union(*(reach.get(other, set()) for other in direct))
        reach |= dict.fromkeys(component, everything)
    found = {}
    for name, others in graph.items():
        others = {other for other in others if other in graph}
        implied = {far for other in others for far in reach[other] - {other} if name not in reach[other]}
        found[name] = others - implied
    return found


def upward(code: Code) -> list[tuple[str, str]]:
    """Imports from one package into a higher one, or one beside it."""
    return [
        (module, other)
        for module, others in code.imports.items()
        for other in sorted(others)
        if height_of(other) > height_of(module)
        or (height_of(other) == height_of(module) < 3 and other.partition(".")[0] != module.partition(".")[0])
    ]
