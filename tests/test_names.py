"""One name, one meaning: no public top-level name of the four packages has two different definitions."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "sims", "real", "reports")
PER_PAPER = re.compile(r"CLUSTER|DATASETS|FIGURES|METHOD_OF|TABLES|figure\d+|table\d+")
"""Names that every folder of `reports` for one paper may define; the folder tells them apart."""

PER_BACKEND = {"codes_of", "decode", "encode", "half_floor", "quantize_linear", "row_words", "unpack", "values_of"}
"""Functions that are implemented once per backend (numba, torch, Triton) behind one operator."""

SAME: dict[str, str] = {
    "main": "the entry of a command line",
    "run": "carries out the run of a config: for code, and for people (`import harness`)",
    "what_if": "times one run under other conditions: the function for people, and its figure",
    "open_driver": "the entry of a driver (entry-point group `haloscope.drivers`)",
    "key": "a field of a record that is a key of a file; of files with quantities (`sims`), with what it may hold",
}
"""Names with the same meaning wherever they are defined, each with the reason."""


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Public names that a module defines at its top level, each with the source of its value.

    Aliases and constants with equal values count as one definition. Functions and classes have the value "" and are
    always distinct. Imports, and so re-exports in `__init__`, are not definitions.
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
    """(path, name) of every name that another file imports, or accesses as an attribute of its module."""
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
    """Public names with more than one definition, and the files that define them.

    Constants that no other file uses are local to their file and may share a name.
    """
    used = used_elsewhere(modules)
    places: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, tree in modules.items():
        for name, text in definitions(tree):
            local = name.isupper() and (path, name) not in used
            if not name.startswith("_") and not local:
                places[name][text or path].add(path)
    return {name: sorted(set().union(*kinds.values())) for name, kinds in places.items() if len(kinds) > 1}


def allowed(name: str, paths: list[str]) -> bool:
    """Whether these files may share a name: one per paper, one per backend, or a name in `SAME`."""
    if PER_PAPER.fullmatch(name):
        folders = [path.split("/")[1] for path in paths if path.startswith("reports/")]
        return len(set(folders)) == len(paths) and not {"core", "draw", "whole"} & set(folders)
    if name in PER_BACKEND:
        return all(path.startswith("harness/kernels/") for path in paths)
    return name in SAME


def test_the_check_sees_what_it_looks_for() -> None:
    sources = {
        "harness/a.py": "Rows = list[int]\nLEAST = 1\nMOST = 2\nclass Part: ...\ndef load(): ...\n_x = 1\n",
        "sims/b.py": "Rows = dict[str, int]\nLEAST = 3\nMOST = 2\nPart: TypeAlias = int\n_x = 2\n",
        "sims/c.py": "from harness import a\nfrom sims.b import LEAST\nprint(a.LEAST)\ndef f(): load = 1\n",
        "sims/__init__.py": "from sims.b import Part, Rows\n",
    }
    modules = {path: ast.parse(text) for path, text in sources.items()}
    assert twice(modules) == {name: ["harness/a.py", "sims/b.py"] for name in ("Rows", "LEAST", "Part")}
    del modules["sims/c.py"]  # without it nobody else uses either LEAST
    assert set(twice(modules)) == {"Rows", "Part"}


def test_what_may_share_a_name() -> None:
    assert allowed("table1", ["reports/sylvie/_scores.py", "reports/cdfgnn/_tables.py"])
    assert not allowed("table1", ["reports/sylvie/_scores.py", "reports/sylvie/_times.py"])
    assert not allowed("CLUSTER", ["reports/sylvie/_times.py", "reports/core/predict.py"])
    assert not allowed("unpack", ["harness/kernels/_bucket_cpu.py", "sims/units.py"])
    assert not allowed("Part", ["harness/a.py", "sims/b.py"])


def test_a_public_name_has_one_meaning() -> None:
    shared = twice(trees())
    assert not {name: paths for name, paths in shared.items() if not allowed(name, paths)}
    assert not sorted((SAME.keys() | PER_BACKEND) - shared.keys()), "no longer shared: take it off the list"
