"""One name, one meaning: no public top-level name of the four packages is defined twice for different things."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "sims", "real", "reports")
PER_PAPER = re.compile(r"CLUSTER|DATASETS|FIGURES|METHOD_OF|TABLES|figure\d+|table\d+")
"""What every folder of `reports` for one paper may have under the same name: the paper says whose it is."""

PER_BACKEND = {"codes_of", "decode", "encode", "half_floor", "quantize_linear", "row_words", "unpack", "values_of"}
"""One operation written once per backend (numba, torch, Triton); its operator is the name that callers use."""

SAME: dict[str, str] = {
    "main": "the entry of a command line",
    "open_driver": "the protocol of a mode's module: the driver of one run",
    "run": "run a program (loopback, real) or a config (`harness.running`), each the one verb of its room",
    "load": "a named thing as an object: a data set, a result, a recording; each the one verb of its room",
    "each": "the same contract: calls on processes of this machine, or as submitted jobs",
}
"""Names that mean the same wherever they are defined, each with its reason."""

TO_RENAME: dict[str, str] = {
    "COMPONENTS": "harness/running/validation.py: those that are validated",
    "Call": "harness/commands/sweep.py: what runs a cell",
    "Cell": "harness/commands/cells.py: a finished run",
    "Counts": "harness/partition/_cutting.py: quality of a cut",
    "Exchange": "sims/replay/_recording.py: a recorded effect",
    "FORMAT": "harness/running/_checkpoint_files.py, sims/replay/_recording.py: versions of two formats",
    "Handle": "sims/network/_air.py: a pointer to arrays",
    "METHODS": "harness/running/validation.py: those that are validated",
    "Operation": "sims/replay/_recording.py, sims/transport/_collectives.py",
    "Outcome": "harness/commands/sweep.py, sims/study/_scenarios.py",
    "Part": "sims/replay/_recording.py: recorded rows",
    "Rows": "sims/network/_rows.py: a table of rows of links",
    "Run": "sims/engine/_driver.py, sims/study/_remarks.py",
    "Script": "sims/engine/_ledger.py, sims/replay/_repeats.py",
    "Steps": "harness/running/trace.py, sims/engine/_driver.py",
    "Waits": "sims/engine/_flights.py, sims/transport/_collectives.py: annotations differ",
    "comparison": "harness/commands/crossings.py, harness/running/summary.py",
    "fit": "harness/workloads/_margins.py, sims/device/_costs.py",
    "notes": "harness/commands/tables.py, sims/study/_remarks.py",
    "parse": "harness/commands/arguments.py, sims/units.py",
    "prepare": "harness/running/_evaluation.py, harness/running/_prepare.py",
    "read": "harness/running/sweep.py, harness/workloads/_description.py",
    "record": "harness/running/validation.py, sims/replay/_replay.py",
    "refusal": "harness/running/_checkpoint_files.py, sims/replay/_replay.py",
    "report": "harness/commands/clusters.py, harness/commands/run.py",
    "shares": "harness/workloads/_closed_form.py, sims/study/_remarks.py",
    "split": "harness/commands/cluster_arguments.py, sims/cluster/_overrides.py",
    "verdict": "harness/commands/crossings.py, harness/running/validation.py",
}
"""Names that still have two meanings, and whose second place should get another; this list only ever shrinks."""


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


def allowed(name: str, paths: list[str]) -> bool:
    """Whether these places may share a name: one per paper, one per backend, or a name in `SAME`."""
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
    assert not allowed("CLUSTER", ["reports/sylvie/_times.py", "reports/core/testbeds.py"])
    assert not allowed("unpack", ["harness/kernels/_bucket_cpu.py", "sims/units.py"])
    assert not allowed("Part", ["harness/a.py", "sims/b.py"])


def test_a_public_name_has_one_meaning() -> None:
    shared = twice(trees())
    assert not {name: paths for name, paths in shared.items() if name not in TO_RENAME and not allowed(name, paths)}
    assert not sorted(TO_RENAME.keys() - shared.keys()), "renamed: take it off the list"
    assert not sorted((SAME.keys() | PER_BACKEND) - shared.keys()), "no longer shared: take it off the list"
