"""One name, one meaning: no public top-level name of the four packages is defined twice for different things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "sims", "real", "reports")
ALLOWED: dict[str, str] = {}


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Public names that a module defines at its top level, each with the text that two equal definitions share.

    Functions and classes have no such text: two of them are two things, however alike they look. Two aliases or
    constants with the same right-hand side are one thing. Imports, and so the re-exports of a face, define nothing.
    """
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, ""
        elif isinstance(node, ast.Assign):
            stored = [n for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            yield from ((name.id, ast.unparse(node.value)) for name in stored)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.value) if node.value else ""


def trees() -> dict[str, ast.Module]:
    """Syntax tree of every module of the four packages, by its path in the repository."""
    paths = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))
    return {path.relative_to(REPOSITORY).as_posix(): ast.parse(path.read_text()) for path in paths}


def used_elsewhere(modules: dict[str, ast.Module]) -> set[tuple[str, str]]:
    """(path, name) of every name that a file other than its own imports, or reads as an attribute of its module."""
    paths = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in modules}
    used: set[tuple[str, str]] = set()
    for tree in modules.values():
        aliases: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if f"{node.module}.{alias.name}" in paths:
                        aliases[alias.asname or alias.name] = paths[f"{node.module}.{alias.name}"]
                    elif node.module in paths:
                        used.add((paths[node.module], alias.name))
        used |= {
            (aliases[node.value.id], node.attr)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
        }
    return used


def twice(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Public names with more than one meaning, and the files that define them.

    A constant that no other file uses belongs to its file: it may be called what a constant of another file is called.
    """
    used = used_elsewhere(modules)
    places: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, tree in modules.items():
        for name, text in definitions(tree):
            local = name.isupper() and (path, name) not in used
            if not name.startswith("_") and not local:
                places[name][text or path].add(path)
    return {name: sorted(set().union(*kinds.values())) for name, kinds in places.items() if len(kinds) > 1}
